/* Convolutions with three taps per axis that mix all channels, by Winograd's algorithm: 4 x 4 results at a time, with
   36 products of channels where the sum of taps has 144 (on one axis 4 results, with 6 for 12). Needs products.h.

   Along an axis, six values d of the field and three taps g are read as polynomials and evaluated at 0, a, -a, b, -b
   and infinity. Four results are r = R ((T g) * (F d)), and so are matrices of them with each transform along both axes.
   With a^2 = 1/2 and b^2 = 2 rounding is about three times that of the plain sum; with the usual 1 and 2 it is seven
   times. It is relative to the largest values that a tile reads, and one that is no number spoils its whole tile. The
   gradients are the transposes of these maps, one after the other.

   A group of tiles goes through everything at once and stays in the cache. Letters: c channels of the field, k of the
   results. All of them are whole vectors. */

enum { READ = 6, WRITTEN = 4, TAPS = 3, GROUP = 48 };

#define A 0.70710678118654752f
#define B 1.41421356237309505f

/* One axis: values `step` apart to values `to_step` apart. */
typedef void line(const vector *from, size step, vector *to, size to_step);

/* F */
INLINE void of_field(const vector *d, size s, vector *to, size t) {
    const vector even_a = d[4 * s] - 2 * d[2 * s], odd_a = A * (d[3 * s] - 2 * d[s]);
    const vector even_b = d[4 * s] - 0.5f * d[2 * s], odd_b = B * (d[3 * s] - 0.5f * d[s]);
    to[0] = d[0] - 2.5f * d[2 * s] + d[4 * s];
    to[t] = even_a + odd_a, to[2 * t] = even_a - odd_a;
    to[3 * t] = even_b + odd_b, to[4 * t] = even_b - odd_b;
    to[5 * t] = d[s] - 2.5f * d[3 * s] + d[5 * s];
}

/* F^T */
INLINE void to_field(const vector *v, size s, vector *d, size t) {
    const vector even_a = v[s] + v[2 * s], odd_a = A * (v[s] - v[2 * s]);
    const vector even_b = v[3 * s] + v[4 * s], odd_b = B * (v[3 * s] - v[4 * s]);
    d[0] = v[0];
    d[t] = v[5 * s] - 2 * odd_a - 0.5f * odd_b;
    d[2 * t] = -2.5f * v[0] - 2 * even_a - 0.5f * even_b;
    d[3 * t] = odd_a + odd_b - 2.5f * v[5 * s];
    d[4 * t] = v[0] + even_a + even_b;
    d[5 * t] = v[5 * s];
}

/* R */
INLINE void to_results(const vector *v, size s, vector *r, size t) {
    const vector even_a = v[s] + v[2 * s], odd_a = A * (v[s] - v[2 * s]);
    const vector even_b = v[3 * s] + v[4 * s], odd_b = B * (v[3 * s] - v[4 * s]);
    r[0] = v[0] + even_a + even_b;
    r[t] = odd_a + odd_b;
    r[2 * t] = 0.5f * even_a + 2 * even_b;
    r[3 * t] = 0.5f * odd_a + 2 * odd_b + v[5 * s];
}

/* R^T */
INLINE void of_results(const vector *r, size s, vector *to, size t) {
    const vector even_a = r[0] + 0.5f * r[2 * s], odd_a = A * (r[s] + 0.5f * r[3 * s]);
    const vector even_b = r[0] + 2 * r[2 * s], odd_b = B * (r[s] + 2 * r[3 * s]);
    to[0] = r[0];
    to[t] = even_a + odd_a, to[2 * t] = even_a - odd_a;
    to[3 * t] = even_b + odd_b, to[4 * t] = even_b - odd_b;
    to[5 * t] = r[3 * s];
}

/* T */
INLINE void of_taps(const vector *g, size s, vector *to, size t) {
    const vector even_a = -2.0f / 3 * (g[0] + 0.5f * g[2 * s]), odd_a = -2.0f / 3 * A * g[s];
    const vector even_b = 1.0f / 6 * (g[0] + 2 * g[2 * s]), odd_b = 1.0f / 6 * B * g[s];
    to[0] = g[0];
    to[t] = even_a + odd_a, to[2 * t] = even_a - odd_a;
    to[3 * t] = even_b + odd_b, to[4 * t] = even_b - odd_b;
    to[5 * t] = g[2 * s];
}

/* T^T */
INLINE void to_taps(const vector *v, size s, vector *g, size t) {
    const vector even_a = -2.0f / 3 * (v[s] + v[2 * s]), even_b = 1.0f / 6 * (v[3 * s] + v[4 * s]);
    g[0] = v[0] + even_a + even_b;
    g[t] = -2.0f / 3 * A * (v[s] - v[2 * s]) + 1.0f / 6 * B * (v[3 * s] - v[4 * s]);
    g[2 * t] = 0.5f * even_a + 2 * even_b + v[5 * s];
}

#undef A
#undef B

/* The same along one axis or both: (before) or (before x before) values to (after) or (after x after). */
INLINE void along(const int axes, line one, const int before, const int after, const vector *from, vector *to) {
    vector half[READ * READ];
    if (axes == 1) {
        one(from, 1, to, 1);
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < before; i++) one(from + i * before, 1, half + i * after, 1);
#pragma GCC unroll 8
    for (int j = 0; j < after; j++) one(half + j, after, to + j, after);
}

INLINE int lines(const int axes, const int each) { return axes == 1 ? 1 : each; }

/* What tiles read and write: for each tile of an axis its places on that axis, -1 for a result beyond the end. On one
   axis there is one row. */
typedef struct {
    size axes, height, width, down, across;
    const int64_t *rows_read, *rows_written, *columns_read, *columns_written;
} tiling;

/* From plane to plane. In a cache, what stands a power of two apart shares few places. */
INLINE size plane_of(size values) { return values + 5 * LANES; }

/* Each of (lines x columns) vectors, written out one by one, so that they stay in registers. */
#define EACH(a, b, lines, columns)                            \
    _Pragma("GCC unroll 8") for (int a = 0; a < (lines); a++) \
        _Pragma("GCC unroll 8") for (int b = 0; b < (columns); b++)

/* Between a grid of points with `each` channels and planes of a group of `count` tiles, which are rows there. A tile
   has `places` on an axis of the grid, which are read, written, or added to. */
enum { FROM_GRID, TO_GRID, ONTO_GRID };
INLINE void move(const int axes, const int how, line one, const int places, const tiling *q, const int64_t *rows,
                 const int64_t *columns, size first, size count, size each, float *grid, float *planes,
                 const float *bias) {
    const size plane = plane_of(GROUP * each), row = READ * plane;
    for (size i = 0; i < count; i++, planes += each) {
        const int64_t *const down = rows + (first + i) / q->across * lines(axes, places);
        const int64_t *const across = columns + (first + i) % q->across * places;
        size at[READ * READ];
        EACH(a, b, lines(axes, places), places)
            at[a * places + b] = down[a] < 0 || across[b] < 0 ? -1 : (down[a] * q->width + across[b]) * each;
        for (size j = 0; j < each; j += LANES) {
            vector here[READ * READ], there[READ * READ];
            if (how == FROM_GRID) {
                EACH(a, b, lines(axes, places), places) {
                    const int p = a * places + b;
                    here[p] = places == READ || at[p] >= 0 ? load(grid + at[p] + j) : (vector){0};
                }
                along(axes, one, places, READ, here, there);
                EACH(a, b, lines(axes, READ), READ) store(planes + a * row + b * plane + j, there[a * READ + b]);
            } else {
                const vector start = bias ? load(bias + j) : (vector){0};
                EACH(a, b, lines(axes, READ), READ) here[a * READ + b] = load(planes + a * row + b * plane + j);
                along(axes, one, READ, places, here, there);
                EACH(a, b, lines(axes, places), places) {
                    const int p = a * places + b;
                    float *const to = grid + at[p] + j;
                    if (places == READ || at[p] >= 0) store(to, there[p] + (how == ONTO_GRID ? load(to) : start));
                }
            }
        }
    }
}

/* Between taps (outer, taps, inner) and planes (outer x inner). */
INLINE void move_taps(const int axes, const int spread, size outer, size inner, float *taps, float *planes) {
    const size plane = plane_of(outer * inner);
    for (size o = 0; o < outer; o++, taps += lines(axes, TAPS) * TAPS * inner, planes += inner)
        for (size j = 0; j < inner; j += LANES) {
            vector few[TAPS * TAPS], many[READ * READ];
            if (spread) {
                EACH(a, b, lines(axes, TAPS), TAPS) few[a * TAPS + b] = load(taps + (a * TAPS + b) * inner + j);
                along(axes, of_taps, TAPS, READ, few, many);
                EACH(a, b, lines(axes, READ), READ) store(planes + (a * READ + b) * plane + j, many[a * READ + b]);
            } else {
                EACH(a, b, lines(axes, READ), READ) many[a * READ + b] = load(planes + (a * READ + b) * plane + j);
                along(axes, to_taps, READ, TAPS, many, few);
                EACH(a, b, lines(axes, TAPS), TAPS) store(taps + (a * TAPS + b) * inner + j, few[a * TAPS + b]);
            }
        }
}

typedef struct {
    float *taps, *weight, *d_weight, *field, *results;
} convolution_room;

INLINE convolution_room rooms(size axes, size c, size k, float *room) {
    const size planes = lines(axes, READ) * READ, area = c * k;
    convolution_room r = {.taps = room};
    r.weight = r.taps + lines(axes, TAPS) * TAPS * area;
    r.d_weight = r.weight + planes * plane_of(area);
    r.field = r.d_weight + planes * plane_of(area);
    r.results = r.field + planes * plane_of(GROUP * c);
    return r;
}

/* y (b n k) of x (b n c) and weight (k c taps), for the samples from `first` to before `last`. */
INLINE void forward_on(const int axes, const tiling *q, size first, size last, size c, size k, const float *x,
                       const float *weight, const float *bias, float *y, float *room) {
    const convolution_room r = rooms(axes, c, k, room);
    const size tiles = q->down * q->across, points = q->height * q->width, taps = lines(axes, TAPS) * TAPS;
    const size planes = lines(axes, READ) * READ;
    transposed_rows(k, c * taps, weight, c * taps, r.taps);
    move_taps(axes, 1, c, k, r.taps, r.weight);
    for (size b = first; b < last; b++)
        for (size i = 0; i < tiles; i += GROUP) {
            const size count = tiles - i < GROUP ? tiles - i : GROUP;
            move(axes, FROM_GRID, of_field, READ, q, q->rows_read, q->columns_read, i, count, c,
                 (float *)x + b * points * c, r.field, NULL);
            for (size p = 0; p < planes; p++)
                product(count, k, c, (strided){r.field + p * plane_of(GROUP * c), c, 1},
                        (right){r.weight + p * plane_of(c * k), k, NULL, 0}, r.results + p * plane_of(GROUP * k), k, 0);
            move(axes, TO_GRID, to_results, WRITTEN, q, q->rows_written, q->columns_written, i, count, k,
                 y + b * points * k, r.results, bias);
        }
}

/* Gradients of the same, d_x and d_weight (k c taps), of which one may be NULL. */
INLINE void backward_on(const int axes, const tiling *q, size first, size last, size c, size k, const float *x,
                        const float *weight, const float *d_y, float *d_x, float *d_weight, float *room) {
    const convolution_room r = rooms(axes, c, k, room);
    const size tiles = q->down * q->across, points = q->height * q->width, taps = lines(axes, TAPS) * TAPS;
    const size planes = lines(axes, READ) * READ;
    for (size i = 0; i < k; i++) transposed_rows(c, taps, weight + i * c * taps, taps, r.taps + i * c * taps);
    move_taps(axes, 1, k, c, r.taps, r.weight);
    for (size b = first; b < last; b++) {
        if (d_x) memset(d_x + b * points * c, 0, points * c * sizeof(float));
        for (size i = 0; i < tiles; i += GROUP) {
            const size count = tiles - i < GROUP ? tiles - i : GROUP;
            const int more = b > first || i > 0;
            move(axes, FROM_GRID, of_results, WRITTEN, q, q->rows_written, q->columns_written, i, count, k,
                 (float *)d_y + b * points * k, r.results, NULL);
            if (d_weight)
                move(axes, FROM_GRID, of_field, READ, q, q->rows_read, q->columns_read, i, count, c,
                     (float *)x + b * points * c, r.field, NULL);
            for (size p = 0; p < planes; p++) {
                float *const field = r.field + p * plane_of(GROUP * c);
                const right results = {r.results + p * plane_of(GROUP * k), k, NULL, 0};
                if (d_weight)
                    product(c, k, count, (strided){field, 1, c}, results, r.d_weight + p * plane_of(c * k), k, more);
                if (d_x) /* whose planes take the place of the field's */
                    product(count, c, k, (strided){results.at, k, 1},
                            (right){r.weight + p * plane_of(c * k), c, NULL, 0}, field, c, 0);
            }
            if (d_x)
                move(axes, ONTO_GRID, to_field, READ, q, q->rows_read, q->columns_read, i, count, c,
                     d_x + b * points * c, r.field, NULL);
        }
    }
    if (d_weight) {
        move_taps(axes, 0, c, k, r.taps, r.d_weight);
        transposed_rows(c * taps, k, r.taps, k, d_weight);
    }
}
