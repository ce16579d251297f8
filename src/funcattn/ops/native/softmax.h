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

#if defined(__AVX512BF16__)
/* 2^x to 3e-6, far less than bfloat16 rounds. A value that is not a number stays none. */
INLINE vector power_of_two(vector x) {
    const vector r = (vector)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), zero = {0};
    vector p = zero + 1.35341524e-2f;
    p = p * r + 5.20114963e-2f;
    p = p * r + 2.41442731e-1f;
    p = p * r + 6.93003841e-1f;
    p = p * r + 1.00000259f;
    return (vector)_mm512_scalef_ps((__m512)p, (__m512)x);
}

enum { TOGETHER = 4 };

INLINE vector either(vector a, vector b, int sum) {
    if (sum) return a + b;
    return larger(a, b);
}

/* The sum, or the largest value, of each of four vectors: that of vector i in every fourth place from i on. It takes
   half the instructions of one vector after the other. */
INLINE vector of_four(const vector *v, int sum) {
    __m512d two[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m512 a = (__m512)v[2 * i], b = (__m512)v[2 * i + 1];
        two[i] = (__m512d)either((vector)_mm512_unpacklo_ps(a, b), (vector)_mm512_unpackhi_ps(a, b), sum);
    }
    vector u = either((vector)_mm512_unpacklo_pd(two[0], two[1]), (vector)_mm512_unpackhi_pd(two[0], two[1]), sum);
    u = either(u, (vector)_mm512_shuffle_f32x4((__m512)u, (__m512)u, 0x4e), sum);
    return either(u, (vector)_mm512_shuffle_f32x4((__m512)u, (__m512)u, 0xb1), sum);
}

/* Of what `of_four` has found, that of vector i, in all places. */
INLINE vector of_one(vector u, int i) {
    switch (i) {
        case 0: return (vector)_mm512_permute_ps((__m512)u, 0x00);
        case 1: return (vector)_mm512_permute_ps((__m512)u, 0x55);
        case 2: return (vector)_mm512_permute_ps((__m512)u, 0xaa);
        default: return (vector)_mm512_permute_ps((__m512)u, 0xff);
    }
}

/* Softmax of TOGETHER rows of so many vectors, a constant, of which the last has `last` values. */
INLINE void short_softmax(float *rows, size length, const int vectors, size last) {
    vector v[TOGETHER][VECTORS], each[TOGETHER];
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            const float *from = rows + i * length + j * LANES;
            v[i][j] = j + 1 < vectors ? load(from) : load_some(from, last, -__builtin_inff());
            each[i] = larger(v[i][j], j ? each[i] : v[i][j]);
        }
    const float doublings = 1.44269504f; /* e is 2 to so much */
    const vector most = of_four(each, 0) * doublings;
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            v[i][j] = power_of_two(v[i][j] * doublings - of_one(most, i));
            if (j)
                each[i] += v[i][j];
            else
                each[i] = v[i][j];
        }
    const vector scale = 1.0f / of_four(each, 1);
#pragma GCC unroll 4
    for (int i = 0; i < TOGETHER; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            float *const to = rows + i * length + j * LANES;
            if (j + 1 < vectors)
                store(to, v[i][j] * of_one(scale, i));
            else
                store_some(to, v[i][j] * of_one(scale, i), last);
        }
}

/* As `softmax_rows`, for results that are rounded to bfloat16. */
static void half_softmax_rows(float *values, size rows, size parts, size length) {
    const size count = rows * parts, vectors = (length + LANES - 1) / LANES, last = length - (vectors - 1) * LANES;
    if (vectors > VECTORS) {
        softmax_rows(values, rows, parts, length);
        return;
    }
    float aside[TOGETHER * TILE] = {0};
    for (size i = 0; i < count; i += TOGETHER) {
        const size some = (count - i < TOGETHER ? count - i : TOGETHER) * length * (size)sizeof(float);
        float *const here = count - i < TOGETHER ? aside : values + i * length;
        if (here == aside) memcpy(aside, values + i * length, some);
        switch (vectors) {
            case 1: short_softmax(here, length, 1, last); break;
            case 2: short_softmax(here, length, 2, last); break;
            case 3: short_softmax(here, length, 3, last); break;
            default: short_softmax(here, length, 4, last); break;
        }
        if (here == aside) memcpy(values + i * length, aside, some);
    }
}
#endif
