/* Newton-Schulz steps on small matrices, one matrix after the other in the cache. Needs products.h.

   A complex matrix is handled as the real one [Re, Im] and its turned twin [-Im, Re]: with Z = X Y^H for
   X = Re + i Im, Re Z = [Re, Im] [Re, Im]^T and Im Z = [Im, -Re] [Re, Im]^T. */

/* out (r x w) = left (r x d) right (d x w), all contiguous. */
INLINE void plain_product(size r, size w, size d, const float *left, const float *of_right, float *out, int add) {
    product(r, w, d, (strided){left, d, 1}, (right){of_right, w, NULL, 0}, out, w, add);
}

/* to (width x rows) = from^T, whose rows are `row` apart. Square by square: in a cache, what stands far apart shares few
   places. */
static void transposed_rows(size rows, size width, const float *from, size row, float *to) {
    enum { SIDE = 16 };
    for (size top = 0; top < rows; top += SIDE) {
        const size high = rows - top < SIDE ? rows - top : SIDE;
        for (size j = 0; j < width; j++) {
            const float *const column = from + top * row + j;
            float *const here = to + j * rows + top;
            for (size i = 0; i < high; i++) here[i] = column[i * row];
        }
    }
}

static void transposed(size rows, size width, const float *from, float *to) {
    transposed_rows(rows, width, from, width, to);
}

static void minus(size count, const float *from, float *to) {
    for (size i = 0; i < count; i++) to[i] = -from[i];
}

/* X <- a X + (b G + c G G) X with G = X X^H, `steps` times; the planes of X are r x w, real and imaginary (NULL). */
static void newton_schulz(size r, size w, int steps, const float abc[3], float *re, float *im, float *room) {
    const size area = r * w, square = r * r;
    float *const re_t = room, *const im_t = re_t + area, *const turned = im_t + area;
    float *const next_re = turned + area, *const next_im = next_re + area;
    float *const g_re = next_im + area, *const g_im = g_re + square, *const g_turned = g_im + square;
    float *const p_re = g_turned + square, *const p_im = p_re + square;
    for (int step = 0; step < steps; step++) {
        transposed(r, w, re, re_t);
        plain_product(r, r, w, re, re_t, g_re, 0);
        if (im) {
            transposed(r, w, im, im_t);
            plain_product(r, r, w, im, im_t, g_re, 1);
            plain_product(r, r, w, im, re_t, g_im, 0);
            minus(area, re, turned);
            plain_product(r, r, w, turned, im_t, g_im, 1);
        }
        /* P = b G + c G G */
        plain_product(r, r, r, g_re, g_re, p_re, 0);
        if (im) {
            minus(square, g_im, g_turned);
            plain_product(r, r, r, g_turned, g_im, p_re, 1);
            plain_product(r, r, r, g_re, g_im, p_im, 0);
            plain_product(r, r, r, g_im, g_re, p_im, 1);
        }
        for (size i = 0; i < square; i++) p_re[i] = abc[1] * g_re[i] + abc[2] * p_re[i];
        if (im)
            for (size i = 0; i < square; i++) p_im[i] = abc[1] * g_im[i] + abc[2] * p_im[i];
        /* X = a X + P X */
        for (size i = 0; i < area; i++) next_re[i] = abc[0] * re[i];
        plain_product(r, w, r, p_re, re, next_re, 1);
        if (im) {
            minus(square, p_im, g_turned);
            plain_product(r, w, r, g_turned, im, next_re, 1);
            for (size i = 0; i < area; i++) next_im[i] = abc[0] * im[i];
            plain_product(r, w, r, p_re, im, next_im, 1);
            plain_product(r, w, r, p_im, re, next_im, 1);
            memcpy(im, next_im, area * sizeof(float));
        }
        memcpy(re, next_re, area * sizeof(float));
    }
}
