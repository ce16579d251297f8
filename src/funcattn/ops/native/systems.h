/* Positive definite systems of a few dozen unknowns. Needs products.h. */

/* The lower factor of A (n n) in its place, its values below the diagonal negated, as `solve` adds them; whether A is
   not positive definite. column: room for n values. */
static int cholesky(size n, float *a, float *column) {
    for (size j = 0; j < n; j++) {
        const float pivot = a[j * n + j];
        if (!(pivot > 0 && pivot < __builtin_inff())) return 1;
        const float by = 1 / __builtin_sqrtf(pivot);
        for (size i = j; i < n; i++) column[i] = a[i * n + j] *= by;
        for (size i = j + 1; i < n; i++) {
            const float of_row = column[i];
            for (size k = j + 1; k <= i; k++) a[i * n + k] -= of_row * column[k];
            a[i * n + j] = -of_row;
        }
    }
    return 0;
}

/* X <- (L L^T)^-1 X, (n n), some rows at once: what they need of the others is a product. */
static void solve(size n, const float *l, float *x) {
    for (size start = 0; start < n; start += ROWS) {
        const size end = start + ROWS < n ? start + ROWS : n;
        if (start) product(end - start, n, start, (strided){l + start * n, n, 1}, (right){x, n, NULL, 0}, x + start * n, n, 1);
        for (size i = start; i < end; i++) {
            for (size k = start; k < i; k++)
                for (size j = 0; j < n; j++) x[i * n + j] += l[i * n + k] * x[k * n + j];
            for (size j = 0; j < n; j++) x[i * n + j] /= l[i * n + i];
        }
    }
    for (size end = n; end > 0;) {
        const size start = end > ROWS ? end - ROWS : 0;
        if (end < n)
            product(end - start, n, n - end, (strided){l + end * n + start, 1, n}, (right){x + end * n, n, NULL, 0},
                    x + start * n, n, 1);
        for (size i = end; i-- > start;) {
            for (size k = i + 1; k < end; k++)
                for (size j = 0; j < n; j++) x[i * n + j] += l[k * n + i] * x[k * n + j];
            for (size j = 0; j < n; j++) x[i * n + j] /= l[i * n + i];
        }
        end = start;
    }
}
