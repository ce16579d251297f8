/* The products of products.h with factors rounded to bfloat16 and sums in single precision, for processors that have
   an instruction for it: each lane adds the product of two pairs at once. */

#include <stdint.h>

#if defined(__AVX512BF16__)
enum { HAS_HALVES = 1, HALF_ROWS = 96, AHEAD = 16 };
typedef uint32_t pair; /* two neighbours along the sum */

INLINE size whole_vectors(size width) { return (width + LANES - 1) / LANES * LANES; }

static const uint16_t IN_TURNS[32] __attribute__((aligned(64))) = {
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
    30, 15, 31};

/* Pairs of the values of two rows, lane by lane; the second row may be missing. */
INLINE __m512i pairs_of(vector even, vector odd) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    return _mm512_permutexvar_epi16(_mm512_load_si512(IN_TURNS), both);
}

/* Rows of depth x width values as rows of pairs, (depth + 1) / 2 x `to_row`, whole vectors, zeros beyond. */
static void pack_pairs(const float *from, size row, size depth, size width, pair *to, size to_row) {
    for (size k = 0; k < depth; k += 2, to += to_row)
        for (size j = 0; j < width; j += LANES) {
            const size some = width - j < LANES ? width - j : LANES;
            const vector even = load_some(from + k * row + j, some, 0);
            const vector odd = k + 1 < depth ? load_some(from + (k + 1) * row + j, some, 0) : (vector){0};
            _mm512_storeu_si512(to + j, pairs_of(even, odd));
        }
}

/* `rows` values of `depth` neighbours as pairs, `to_row` apart. */
static void round_rows(strided from, size rows, size depth, pair *to, size to_row) {
    for (size i = 0; i < rows; i++)
        for (size k = 0; k < depth; k += LANES) {
            __builtin_prefetch(from.at + (i + AHEAD) * from.row + k); /* most of these rows come from memory */
            const size some = depth - k < LANES ? depth - k : LANES;
            const vector values = load_some(from.at + i * from.row + k, some, 0);
            _mm256_storeu_si256((__m256i *)(to + i * to_row + k / 2), (__m256i)_mm512_cvtneps_pbh((__m512)values));
        }
}

typedef struct {
    const pair *at;
    size row, step;
} paired;

INLINE void half_tile(const int rows, const int vectors, size steps, paired a, const pair *b, size b_row, float *c,
                      size c_row, size last, int add) {
    __m512 sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            const float *from = c + i * c_row + j * LANES;
            sum[i][j] = !add                  ? _mm512_setzero_ps()
                        : j + 1 < vectors     ? (__m512)load(from)
                                              : (__m512)load_some(from, last, 0);
        }
    for (size k = 0; k < steps; k++) {
        __m512i of_b[VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) of_b[j] = _mm512_loadu_si512(b + k * b_row + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const __m512i of_a = _mm512_set1_epi32((int)a.at[i * a.row + k * a.step]);
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)of_a, (__m512bh)of_b[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            float *const to = c + i * c_row + j * LANES;
            if (j + 1 < vectors)
                store(to, (vector)sum[i][j]);
            else
                store_some(to, (vector)sum[i][j], last);
        }
}

INLINE void half_rows(int rows, const int vectors, size steps, paired a, const pair *b, size b_row, float *c,
                      size c_row, size last, int add) {
    switch (rows) {
        case 1: half_tile(1, vectors, steps, a, b, b_row, c, c_row, last, add); break;
        case 2: half_tile(2, vectors, steps, a, b, b_row, c, c_row, last, add); break;
        case 3: half_tile(3, vectors, steps, a, b, b_row, c, c_row, last, add); break;
        case 4: half_tile(4, vectors, steps, a, b, b_row, c, c_row, last, add); break;
        case 5: half_tile(5, vectors, steps, a, b, b_row, c, c_row, last, add); break;
        default: half_tile(6, vectors, steps, a, b, b_row, c, c_row, last, add); break;
    }
}

/* All rows of up to TILE columns, of which the last vector has `last`. */
static void half_columns(int vectors, size rows, size steps, paired a, const pair *b, size b_row, float *c, size c_row,
                         size last, int add) {
    for (size i = 0; i < rows; i += ROWS) {
        const int some = rows - i < ROWS ? (int)(rows - i) : ROWS;
        const paired here = {a.at + i * a.row, a.row, a.step};
        float *const to = c + i * c_row;
        switch (vectors) {
            case 1: half_rows(some, 1, steps, here, b, b_row, to, c_row, last, add); break;
            case 2: half_rows(some, 2, steps, here, b, b_row, to, c_row, last, add); break;
            case 3: half_rows(some, 3, steps, here, b, b_row, to, c_row, last, add); break;
            default: half_rows(some, VECTORS, steps, here, b, b_row, to, c_row, last, add); break;
        }
    }
}

/* As `product`. b.packed: all of B by `pack_pairs`, or NULL. */
static void half_product(size rows, size width, size depth, strided a, right b, float *c, size c_row, int add) {
    pair of_a[HALF_ROWS * DEPTH / 2] __attribute__((aligned(64)));
    pair of_b[DEPTH / 2 * TILE] __attribute__((aligned(64)));
    for (size from = 0; from < depth; from += DEPTH) {
        const size deep = depth - from < DEPTH ? depth - from : DEPTH, steps = (deep + 1) / 2;
        for (size i = 0; i < rows; i += HALF_ROWS) {
            const size some = rows - i < HALF_ROWS ? rows - i : HALF_ROWS;
            const strided here = {a.at + i * a.row + from * a.column, a.row, a.column};
            paired left = {of_a, DEPTH / 2, 1};
            if (a.column == 1)
                round_rows(here, some, deep, of_a, DEPTH / 2);
            else
                pack_pairs(here.at, a.column, deep, some, of_a, HALF_ROWS), left = (paired){of_a, 1, HALF_ROWS};
            for (size j = 0; j < width; j += TILE) {
                const size wide = width - j < TILE ? width - j : TILE;
                const int vectors = (int)((wide + LANES - 1) / LANES);
                const pair *right_pairs = of_b;
                size row = TILE;
                if (b.packed)
                    row = whole_vectors(b.columns), right_pairs = (const pair *)b.packed + from / 2 * row + j;
                else
                    pack_pairs(b.at + from * b.row + j, b.row, deep, wide, of_b, TILE);
                half_columns(vectors, some, steps, left, right_pairs, row, c + i * c_row + j, c_row,
                             wide - (vectors - 1) * LANES, add || from > 0);
            }
        }
    }
}
#else
enum { HAS_HALVES = 0 };
#endif
