/* Softmax of short rows, and its gradient. Needs products.h. */

typedef int whole_numbers __attribute__((vector_size(LANES * sizeof(int)), may_alias));

/* a where it is larger, else b; so b where one of them is not a number. */
#if defined(__AVX512F__)
INLINE vector larger(vector a, vector b) { return (vector)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE float largest_of(vector v) { return _mm512_reduce_max_ps((__m512)v); }
INLINE float sum_of(vector v) { return _mm512_reduce_add_ps((__m512)v); }
#else
INLINE vector larger(vector a, vector b) {
    const whole_numbers yes = a > b;
    return (vector)((yes & (whole_numbers)a) | (~yes & (whole_numbers)b));
}
INLINE float largest_of(vector v) {
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}
INLINE float sum_of(vector v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}
#endif

/* e^x for x <= 0, to two units in the last place; below -87, which is 0 beside 1, e^-87. A value that is not a
   number stays none. */
INLINE vector exponential(vector x) {
    const vector zero = {0};
    const vector least = zero - 87.0f;
    const vector magic = zero + 12582912.0f; /* added and taken away again: rounds to a whole number */
    x = larger(least, x);
    const vector n = (x * 1.44269504f + magic) - magic;
    const vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vector p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const whole_numbers power = (__builtin_convertvector(n, whole_numbers) + 127) << 23;
    vector scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

INLINE void softmax_row(float *row, size length) {
    const size whole = length - length % LANES, rest = length - whole;
    const vector zero = {0};
    vector most = zero - __builtin_inff();
    for (size j = 0; j < whole; j += LANES) most = larger(load(row + j), most);
    if (rest) most = larger(load_some(row + whole, rest, -__builtin_inff()), most);
    const float shift = largest_of(most);
    vector total = zero;
    for (size j = 0; j < whole; j += LANES) {
        const vector v = exponential(load(row + j) - shift);
        total += v;
        store(row + j, v);
    }
    vector last = zero;
    if (rest) {
        last = exponential(load_some(row + whole, rest, 0) - shift);
        store_some(row + whole, last, rest);
        last = load_some(row + whole, rest, 0);
    }
    const float scale = 1.0f / sum_of(total + last);
    for (size j = 0; j < whole; j += LANES) store(row + j, load(row + j) * scale);
    if (rest) store_some(row + whole, last * scale, rest);
}

/* d_row becomes the gradient of what softmax made `row` of. */
INLINE void softmax_row_backward(const float *row, float *d_row, size length) {
    const size whole = length - length % LANES, rest = length - whole;
    vector total = {0};
    for (size j = 0; j < whole; j += LANES) total += load(row + j) * load(d_row + j);
    if (rest) total += load_some(row + whole, rest, 0) * load_some(d_row + whole, rest, 0);
    const float mean = sum_of(total);
    for (size j = 0; j < whole; j += LANES) store(d_row + j, load(row + j) * (load(d_row + j) - mean));
    for (size j = whole; j < length; j++) d_row[j] = row[j] * (d_row[j] - mean);
}

/* Rows (rows x parts x length) to partitions of unity. */
static void softmax_rows(float *values, size rows, size parts, size length) {
    if (length == 4 * LANES) /* a constant, so that the row stays in registers */
        for (size i = 0; i < rows * parts; i++) softmax_row(values + i * 4 * LANES, 4 * LANES);
    else if (length == 2 * LANES)
        for (size i = 0; i < rows * parts; i++) softmax_row(values + i * 2 * LANES, 2 * LANES);
    else
        for (size i = 0; i < rows * parts; i++) softmax_row(values + i * length, length);
}
static void softmax_rows_backward(const float *values, float *d_values, size rows, size parts, size length) {
    if (length == 4 * LANES)
        for (size i = 0; i < rows * parts; i++)
            softmax_row_backward(values + i * 4 * LANES, d_values + i * 4 * LANES, 4 * LANES);
    else
        for (size i = 0; i < rows * parts; i++)
            softmax_row_backward(values + i * length, d_values + i * length, length);
}
