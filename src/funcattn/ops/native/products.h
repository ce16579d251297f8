/* Products of small matrices with many rows, in single precision.

   C (M x N) = A B, or C += A B. A is read by any two strides, so that it may be a transpose; rows of B and of C
   are contiguous. B is copied tile by tile to where it stays in the cache. Written with the vectors of GCC and
   Clang, whose width is that of the machine that the file is compiled for. */

#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 6, VECTORS = 4 };
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 6, VECTORS = 2 };
#else
enum { LANES = 4, ROWS = 6, VECTORS = 2 };
#endif
enum { TILE = LANES * VECTORS, DEPTH = 192 };

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef ptrdiff_t size;

#define INLINE static inline __attribute__((always_inline))

INLINE vector load(const float *from) { return *(const vector *)from; }
INLINE void store(float *to, vector value) { *(vector *)to = value; }

/* The first `count` of LANES values, the rest as said. */
#if defined(__AVX512F__)
#include <immintrin.h>
INLINE vector load_some(const float *from, size count, float rest) {
    return (vector)_mm512_mask_loadu_ps(_mm512_set1_ps(rest), (__mmask16)((1u << count) - 1), from);
}
INLINE void store_some(float *to, vector value, size count) {
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)value);
}
#else
INLINE vector load_some(const float *from, size count, float rest) {
    float values[LANES];
    for (int i = 0; i < LANES; i++) values[i] = rest;
    memcpy(values, from, count * sizeof(float));
    return load(values);
}
INLINE void store_some(float *to, vector value, size count) {
    float values[LANES];
    store(values, value);
    memcpy(to, values, count * sizeof(float));
}
#endif

typedef struct {
    const float *at;
    size row, column;
} strided;

/* rows x (vectors * LANES) values of C; both numbers are constants where this is called, and all of it stays in
   registers. */
INLINE void tile(const int rows, const int vectors, size depth, strided a, const float *b, size b_row, float *c,
                 size c_row, int add) {
    vector sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) sum[i][j] = (vector){0};
    for (size k = 0; k < depth; k++) {
        vector of_b[VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) of_b[j] = load(b + k * b_row + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const float of_a = a.at[i * a.row + k * a.column];
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) sum[i][j] += of_a * of_b[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            float *const to = c + i * c_row + j * LANES;
            /* Added last: a sum in pieces is rounded less than one that goes on and on. */
            if (add) sum[i][j] += load(to);
            store(to, sum[i][j]);
        }
}

INLINE void tile_of_rows(int rows, const int vectors, size depth, strided a, const float *b, size b_row, float *c,
                         size c_row, int add) {
    switch (rows) {
        case 1: tile(1, vectors, depth, a, b, b_row, c, c_row, add); break;
        case 2: tile(2, vectors, depth, a, b, b_row, c, c_row, add); break;
        case 3: tile(3, vectors, depth, a, b, b_row, c, c_row, add); break;
        case 4: tile(4, vectors, depth, a, b, b_row, c, c_row, add); break;
        case 5: tile(5, vectors, depth, a, b, b_row, c, c_row, add); break;
        default: tile(6, vectors, depth, a, b, b_row, c, c_row, add); break;
    }
}

/* All rows of up to VECTORS * LANES columns. */
static void columns(int vectors, size rows, size depth, strided a, const float *b, size b_row, float *c,
                    size c_row, int add) {
    for (size i = 0; i < rows; i += ROWS) {
        const int some = rows - i < ROWS ? (int)(rows - i) : ROWS;
        const strided here = {a.at + i * a.row, a.row, a.column};
        float *const to = c + i * c_row;
        switch (vectors) {
            case 1: tile_of_rows(some, 1, depth, here, b, b_row, to, c_row, add); break;
            case 2: tile_of_rows(some, 2, depth, here, b, b_row, to, c_row, add); break;
#if defined(__AVX512F__)
            case 3: tile_of_rows(some, 3, depth, here, b, b_row, to, c_row, add); break;
#endif
            default: tile_of_rows(some, VECTORS, depth, here, b, b_row, to, c_row, add); break;
        }
    }
}

/* The right factor of a product, with rows of `row` values. packed: a copy by `pack` of a matrix of which these are
   the first columns, or all, up to the end of a tile, or NULL; columns: of that matrix. */
typedef struct {
    const float *at;
    size row;
    const float *packed;
    size columns;
} right;

/* B (depth x width) tile by tile, each contiguous, in the order in which `product` wants them; columns beyond the
   last whole vector are not part of it. */
static void pack(const float *b, size row, size depth, size width, float *to) {
    const size whole = width - width % LANES;
    for (size from = 0; from < depth; from += DEPTH) {
        const size deep = depth - from < DEPTH ? depth - from : DEPTH;
        for (size j = 0; j < whole; j += TILE) {
            const size wide = whole - j < TILE ? whole - j : TILE;
            for (size k = 0; k < deep; k++, to += wide) memcpy(to, b + (from + k) * row + j, wide * sizeof(float));
        }
    }
}

/* Columns that do not fill a vector: B is copied into whole vectors, and C goes through a tile beside it. */
static void last_columns(size rows, size width, size depth, strided a, const float *b, size b_row, float *c, size c_row,
                         int add, float *packed) {
    float beside[ROWS * LANES] __attribute__((aligned(64))) = {0};
    for (size k = 0; k < depth; k++) store(packed + k * LANES, load_some(b + k * b_row, width, 0));
    for (size i = 0; i < rows; i += ROWS) {
        const int some = rows - i < ROWS ? (int)(rows - i) : ROWS;
        float *const to = c + i * c_row;
        if (add)
            for (int r = 0; r < some; r++) store(beside + r * LANES, load_some(to + r * c_row, width, 0));
        columns(1, some, depth, (strided){a.at + i * a.row, a.row, a.column}, packed, LANES, beside, LANES, add);
        for (int r = 0; r < some; r++) store_some(to + r * c_row, load(beside + r * LANES), width);
    }
}

static void product(size rows, size width, size depth, strided a, right b, float *c, size c_row, int add) {
    float here_packed[DEPTH * TILE] __attribute__((aligned(64)));
    const size whole = width - width % LANES;
    for (size from = 0; from < depth; from += DEPTH) {
        const size deep = depth - from < DEPTH ? depth - from : DEPTH;
        const strided here = {a.at + from * a.column, a.row, a.column};
        const int more = add || from > 0;
        for (size j = 0; j < whole; j += TILE) {
            const size wide = whole - j < TILE ? whole - j : TILE;
            const float *tile_of_b = b.at + from * b.row + j;
            size tile_row = b.row;
            if (b.packed) {
                tile_of_b = b.packed + from * (b.columns - b.columns % LANES) + deep * j, tile_row = wide;
            } else if (rows > 4 * ROWS && b.row != wide) {
                pack(tile_of_b, b.row, deep, wide, here_packed);
                tile_of_b = here_packed, tile_row = wide;
            }
            columns((int)(wide / LANES), rows, deep, here, tile_of_b, tile_row, c + j, c_row, more);
        }
        if (whole < width)
            last_columns(rows, width - whole, deep, here, b.at + from * b.row + whole, b.row, c + whole, c_row, more,
                         here_packed);
    }
}
