/* The passes over points of functional attention with a learned partition of unity, in single precision.

   They compute what `passes.py` computes, whose words and letters are used here: c width, h heads, k features of
   the basis of a head, g functions of a head in `parts` partitions of unity, f channels of the field and e of the
   values of a head. A block of points goes through everything at once and stays in the cache; the basis is computed
   again on every pass, unless there is room to store it. Points of all samples are counted in units of a block: a
   call does the units from `first` to before `last`, and adds to the sums that it is given, so that several threads
   can share a pass, each with sums of its own. */

#include "products.h"
#include "halves.h"
#include "softmax.h"
#include "orthogonal.h"
#include "systems.h"
#include "middle.h"
#include "convolution.h"

enum { BLOCK = 96 };

typedef struct {
    size samples, points, c, h, k, g, parts, f, e, out;
    size half;                  /* whether factors of products are rounded to bfloat16; sums are not */
    const float *x;             /* (b n c), or the features of the basis */
    const float *field;         /* (b n hf), or NULL where it is x, or where the maps make it */
    const float *maps;          /* (c, hk + hf), or NULL where the features of all points are stored already */
    const float *maps_transposed; /* (hk + hf, c), or NULL where there are none */
    const float *scores;        /* (h k g) */
    const float *scores_transposed; /* (h g k) */
    const float *score_bias;    /* (h g) */
    const float *weights;       /* (b n), or NULL */
    const float *mask;          /* (b n), 0 or 1, or NULL */
    const float *coefficients;  /* (b h g e) */
    const float *coefficients_transposed; /* (b h e g) */
    const float *output;        /* (out, he), or NULL for the identity of one head */
    const float *output_transposed; /* (he, out) */
    const float *output_bias;   /* (out), or NULL */
    size kept;                  /* points of each sample of which features and values are stored */
    float *basis;               /* (b kept hg), block by block, head by head; or NULL: it is computed again */
    float *features;            /* (b kept hk + hf), or NULL */
    float *values;              /* (b kept he), or NULL */
    float *d_values;            /* (b kept he), or NULL */
    float *packed;              /* room for the maps and for the output's map, packed */
} call;

typedef struct {
    size sample, from, count;
} block;

/* C = A B or C += A B, as the call wants its products. */
INLINE void multiplied(const call *q, size rows, size width, size depth, strided a, right b, float *c, size c_row, int add) {
#if defined(__AVX512BF16__)
    if (q->half) {
        half_product(rows, width, depth, a, b, c, c_row, add);
        return;
    }
#endif
    product(rows, width, depth, a, b, c, c_row, add);
}

/* B as products want it, once for many of them. */
static void packed_for(const call *q, const float *b, size depth, size width, float *to) {
#if defined(__AVX512BF16__)
    if (q->half) {
        pack_pairs(b, width, depth, width, (pair *)to, whole_vectors(width));
        return;
    }
#endif
    pack(b, width, depth, width, to);
}

/* Softmax of scores (rows, g), as exact as products of it are. */
static void partitions_of(const call *q, float *scores, size rows) {
#if defined(__AVX512BF16__)
    if (q->half) {
        half_softmax_rows(scores, rows, q->parts, q->g / q->parts);
        return;
    }
#endif
    softmax_rows(scores, rows, q->parts, q->g / q->parts);
}

int has_halves(void) { return HAS_HALVES; }

static size blocks_of(const call *q) { return (q->points + BLOCK - 1) / BLOCK; }

static block block_at(const call *q, size unit) {
    const size each = blocks_of(q), sample = unit / each, from = (unit % each) * BLOCK;
    return (block){sample, from, q->points - from < BLOCK ? q->points - from : BLOCK};
}

/* Where a block stands in what is stored of the first points of each sample, or the room that is given. */
static float *stored(const call *q, float *all, block at, size channels, float *room) {
    if (!all || at.from + at.count > q->kept) return room;
    return all + (at.sample * q->kept + at.from) * channels;
}

typedef struct {
    const float *basis, *field;
    size basis_row, field_row;
} features;

enum { ONLY_BASIS, BOTH };

/* Features of the basis and of the field at a block. known: a pass before has stored them where there is room. */
static features features_at(const call *q, block at, int which, int known, float *room) {
    const size basis = q->h * q->k, field = q->h * q->f, both = basis + field, start = at.sample * q->points + at.from;
    const float *x = q->x + start * q->c;
    if (!q->maps_transposed) {
        const float *f = q->field ? q->field + start * field : x;
        return (features){x, f, q->c, q->field ? field : q->c};
    }
    float *to = stored(q, q->features, at, both, room);
    if (to == room || !known) {
        const right maps = {q->maps, both, q->packed, both};
        /* The last columns, fewer than a vector, round in another way: a pass must not make them of others. */
        const size width = which == BOTH || basis % LANES ? both : basis;
        if (q->half || width % TILE == 0 || width == both)
            multiplied(q, at.count, width, q->c, (strided){x, q->c, 1}, maps, to, both, 0);
        else /* the packed tiles are those of all columns */
            multiplied(q, at.count, width, q->c, (strided){x, q->c, 1}, (right){q->maps, both, NULL, 0}, to, both, 0);
    }
    return (features){to, to + basis, both, both};
}

/* Phi of one head (count, g). known: a pass before has stored it where there is room. */
static float *basis_at(const call *q, block at, features here, size head, int known, float *room) {
    float *const all = stored(q, q->basis, at, q->h * q->g, NULL), *const phi = all ? all + head * at.count * q->g : room;
    if (all && known) return phi;
    const float *bias = q->score_bias + head * q->g;
    for (size i = 0; i < at.count; i++) memcpy(phi + i * q->g, bias, q->g * sizeof(float));
    const right scores = {q->scores + head * q->k * q->g, q->g, NULL, 0};
    multiplied(q, at.count, q->g, q->k, (strided){here.basis + head * q->k, here.basis_row, 1}, scores, phi, q->g, 1);
    partitions_of(q, phi, at.count);
    return phi;
}

static void scale_rows(float *rows, size count, size row, size width, const float *by) {
    for (size i = 0; i < count; i++)
        for (size j = 0; j < width; j++) rows[i * row + j] *= by[i];
}

/* w Phi (count, g), beside it. */
static const float *weighted(const float *phi, size count, size g, const float *w, float *to) {
    if (!w) return phi;
    for (size i = 0; i < count; i++)
        for (size j = 0; j < g; j++) to[i * g + j] = w[i] * phi[i * g + j];
    return to;
}

static void add_columns(const float *rows, size count, size width, float *sums) {
    for (size i = 0; i < count; i++)
        for (size j = 0; j < width; j++) sums[j] += rows[i * width + j];
}

static const float *of_points(const float *all, const call *q, block at) {
    return all ? all + at.sample * q->points + at.from : NULL;
}

/* Floats of `room` that each pass below wants. */
size room_for(const call *q) {
    const size both = q->h * (q->k + q->f);
    return BLOCK * (2 * both + 2 * q->g + q->h * q->e + q->out + q->c);
}
/* A packed matrix takes its whole vectors, for pairs too: these are half as many rows, of whole vectors. */
static size packed_maps(const call *q) { return q->maps ? q->c * (q->h * (q->k + q->f) + LANES) : 0; }
size room_for_packed(const call *q) { return packed_maps(q) + (q->output ? (q->out + LANES) * q->h * q->e : 0); }

/* The maps tile by tile: once, before the passes. The output's stands as the lift wants it. */
void pack_maps(const call *q) {
    const size both = q->h * (q->k + q->f), he = q->h * q->e;
    if (q->maps) packed_for(q, q->maps, q->c, both, q->packed);
    if (q->output_transposed) packed_for(q, q->output_transposed, he, q->out, q->packed + packed_maps(q));
}

/* sums (b h f+1 g) += [field, 1]^T w Phi; stores features and basis. */
void sum_forward(const call *q, size first, size last, float *sums, float *room) {
    const size both = q->h * (q->k + q->f);
    float *const phi_room = room + BLOCK * both;
    for (size unit = first; unit < last; unit++) {
        const block at = block_at(q, unit);
        const features here = features_at(q, at, BOTH, 0, room);
        const float *w = of_points(q->weights, q, at);
        for (size head = 0; head < q->h; head++) {
            float *const moments = sums + (at.sample * q->h + head) * (q->f + 1) * q->g;
            const float *phi = weighted(basis_at(q, at, here, head, 0, phi_room), at.count, q->g, w, phi_room);
            add_columns(phi, at.count, q->g, moments + q->f * q->g);
            multiplied(q, q->f, q->g, at.count, (strided){here.field + head * q->f, 1, here.field_row}, (right){phi, q->g, NULL, 0},
                    moments, q->g, 1);
        }
    }
}

/* Phi_1 M_1, ... of all heads side by side, (count, he), 0 at masked points. */
static void values_of_head(const call *q, block at, const float *phi, size head, float *values) {
    const size he = q->h * q->e;
    const float *m = q->coefficients + (at.sample * q->h + head) * q->g * q->e, *mask = of_points(q->mask, q, at);
    multiplied(q, at.count, q->e, q->g, (strided){phi, q->g, 1}, (right){m, q->e, NULL, 0}, values + head * q->e, he, 0);
    if (mask) scale_rows(values + head * q->e, at.count, he, q->e, mask);
}

/* out (b n out) = values O^T + o; stores the values. */
void lift_forward(const call *q, size first, size last, int known, float *out, float *room) {
    const size both = q->h * (q->k + q->f), he = q->h * q->e;
    float *const phi_room = room + BLOCK * both, *const values_room = phi_room + BLOCK * q->g;
    for (size unit = first; unit < last; unit++) {
        const block at = block_at(q, unit);
        const features here = features_at(q, at, ONLY_BASIS, known, room);
        float *to = out + (at.sample * q->points + at.from) * q->out;
        float *values = q->output ? stored(q, q->values, at, he, values_room) : to;
        for (size head = 0; head < q->h; head++) {
            const float *phi = basis_at(q, at, here, head, known, phi_room);
            values_of_head(q, at, phi, head, values);
        }
        if (!q->output) {
            if (q->output_bias)
                for (size i = 0; i < at.count; i++)
                    for (size j = 0; j < q->out; j++) to[i * q->out + j] += q->output_bias[j];
            continue;
        }
        if (q->output_bias)
            for (size i = 0; i < at.count; i++) memcpy(to + i * q->out, q->output_bias, q->out * sizeof(float));
        const right map = {q->output_transposed, q->out, q->packed + packed_maps(q), q->out};
        multiplied(q, at.count, q->out, he, (strided){values, he, 1}, map, to, q->out, q->output_bias != NULL);
    }
}

/* The gradient of the values at a block, (count, he). known: a pass before has stored it where there is room. */
static const float *d_values_at(const call *q, block at, const float *d_out, int known, float *room) {
    const size he = q->h * q->e;
    const float *mask = of_points(q->mask, q, at);
    d_out += (at.sample * q->points + at.from) * q->out;
    if (!q->output && !mask) return d_out;
    float *to = stored(q, q->d_values, at, he, room);
    if (to != room && known) return to;
    if (q->output)
        multiplied(q, at.count, he, q->out, (strided){d_out, q->out, 1}, (right){q->output, he, NULL, 0}, to, he, 0);
    else
        memcpy(to, d_out, at.count * he * sizeof(float));
    if (mask) scale_rows(to, at.count, he, he, mask);
    return to;
}

/* d_coefficients (b h e g) and d_output (out, he), which are added to. */
void lift_backward(const call *q, size first, size last, int known, const float *d_out, float *d_coefficients,
                   float *d_output, float *room) {
    const size both = q->h * (q->k + q->f), he = q->h * q->e;
    float *const phi_room = room + BLOCK * both, *const values_room = phi_room + BLOCK * q->g;
    float *const d_values_room = values_room + BLOCK * he;
    for (size unit = first; unit < last; unit++) {
        const block at = block_at(q, unit);
        const features here = features_at(q, at, ONLY_BASIS, known, room);
        const float *d_values = d_values_at(q, at, d_out, 0, d_values_room);
        float *values = stored(q, known ? q->values : NULL, at, he, values_room);
        for (size head = 0; head < q->h; head++) {
            const float *phi = basis_at(q, at, here, head, known, phi_room);
            multiplied(q, q->e, q->g, at.count, (strided){d_values + head * q->e, 1, he}, (right){phi, q->g, NULL, 0},
                    d_coefficients + (at.sample * q->h + head) * q->e * q->g, q->g, 1);
            if (d_output && values == values_room) values_of_head(q, at, phi, head, values);
        }
        if (d_output)
            multiplied(q, q->out, he, at.count, (strided){d_out + (at.sample * q->points + at.from) * q->out, 1, q->out},
                    (right){values, he, NULL, 0}, d_output, he, 1);
    }
}

typedef struct {
    const float *d_sums;               /* (b h f+1 g) */
    const float *d_moments_transposed; /* (b h g f) */
    const float *d_out;                /* (b n out), or NULL where there was no lift */
    float *d_x;                        /* (b n c) */
    float *d_field;                    /* (b n hf), or NULL where the field is not given */
    float *d_maps;                     /* (hk + hf, c), or NULL; added to, as those below */
    float *d_scores;                   /* (h k g) */
    float *d_score_bias;               /* (h g) */
} gradients;

/* The gradients of what the points are given, from the sums and from the lift. */
void sum_backward(const call *q, size first, size last, int known, const gradients *d, float *room) {
    const size basis = q->h * q->k, field = q->h * q->f, both = basis + field, he = q->h * q->e, g = q->g;
    float *const phi_room = room + BLOCK * both, *const d_phi = phi_room + BLOCK * g;
    float *const d_values_room = d_phi + BLOCK * g, *const d_both_room = d_values_room + BLOCK * he;
    for (size unit = first; unit < last; unit++) {
        const block at = block_at(q, unit);
        const size start = at.sample * q->points + at.from;
        const features here = features_at(q, at, BOTH, known, room);
        const float *w = of_points(q->weights, q, at);
        const float *d_values = d->d_out ? d_values_at(q, at, d->d_out, known, d_values_room) : NULL;
        float *const d_x = d->d_x + start * q->c;
        /* Where the gradients of both features go, and how far apart their rows are. */
        float *d_basis = d_both_room, *d_field = d_both_room + basis;
        size d_basis_row = both, d_field_row = both;
        if (!q->maps_transposed) {
            d_basis = d_x, d_basis_row = q->c;
            d_field = d->d_field ? d->d_field + start * field : d_both_room, d_field_row = field;
        }
        for (size head = 0; head < q->h; head++) {
            const size place = at.sample * q->h + head;
            const strided of_field = {here.field + head * q->f, here.field_row, 1};
            const float *const d_sums = d->d_sums + place * (q->f + 1) * g;
            const float *phi = basis_at(q, at, here, head, known, phi_room);
            for (size i = 0; i < at.count; i++) memcpy(d_phi + i * g, d_sums + q->f * g, g * sizeof(float));
            multiplied(q, at.count, g, q->f, of_field, (right){d_sums, g, NULL, 0}, d_phi, g, 1);
            if (w) scale_rows(d_phi, at.count, g, g, w);
            if (d_values) {
                const right m = {q->coefficients_transposed + place * q->e * g, g, NULL, 0};
                multiplied(q, at.count, g, q->e, (strided){d_values + head * q->e, he, 1}, m, d_phi, g, 1);
            }
            const right d_moments = {d->d_moments_transposed + place * g * q->f, q->f, NULL, 0};
            multiplied(q, at.count, q->f, g, (strided){phi, g, 1}, d_moments, d_field + head * q->f, d_field_row, 0);
            if (w) scale_rows(d_field + head * q->f, at.count, d_field_row, q->f, w);
            softmax_rows_backward(phi, d_phi, at.count, q->parts, g / q->parts);
            add_columns(d_phi, at.count, g, d->d_score_bias + head * g);
            multiplied(q, q->k, g, at.count, (strided){here.basis + head * q->k, 1, here.basis_row}, (right){d_phi, g, NULL, 0},
                    d->d_scores + head * q->k * g, g, 1);
            const right back = {q->scores_transposed + head * g * q->k, q->k, NULL, 0};
            multiplied(q, at.count, q->k, g, (strided){d_phi, g, 1}, back, d_basis + head * q->k, d_basis_row, 0);
        }
        if (q->maps_transposed) {
            const right back = {q->maps_transposed, q->c, NULL, 0};
            multiplied(q, at.count, q->c, both, (strided){d_both_room, both, 1}, back, d_x, q->c, 0);
            multiplied(q, both, q->c, at.count, (strided){d_both_room, 1, both}, (right){q->x + start * q->c, q->c, NULL, 0},
                    d->d_maps, q->c, 1);
        } else if (!q->field) {
            for (size i = 0; i < at.count * q->c; i++) d_x[i] += d_field[i];
        }
    }
}

/* Rows `first` to before `last` of C (. x width) = A B + bias. A has any strides, B (depth x width) contiguous rows.
   room: for B, packed, or NULL where B is long: it is then packed piece by piece. */
void multiply(size first, size last, size width, size depth, const float *a, size a_row, size a_column, const float *b,
              const float *bias, float *c, float *room) {
    const size step = room ? BLOCK : last - first;
    if (room) pack(b, width, depth, width, room);
    const right factor = {b, width, room, width};
    for (size i = first; i < last; i += step) {
        const size count = last - i < step ? last - i : step;
        float *const to = c + i * width;
        if (bias)
            for (size j = 0; j < count; j++) memcpy(to + j * width, bias, width * sizeof(float));
        product(count, width, depth, (strided){a + i * a_row, a_row, a_column}, factor, to, width, bias != NULL);
    }
}

/* Matrices `first` to before `last` of `stack` (k x rows x width, complex numbers as pairs), each over its norm and
   then through the steps of Newton and Schulz with coefficients abc; where they are tall, by their transposes. */
size room_for_orthogonal(size rows, size width) {
    const size small = rows < width ? rows : width;
    return 8 * rows * width + 6 * small * small;
}

void orthogonalise(size first, size last, size rows, size width, int pairs, int steps, const float *abc, float least,
                   float *stack, float *room) {
    const size area = rows * width, tall = rows > width;
    float *const re = room, *const im = pairs ? re + area : NULL, *const aside = re + 2 * area;
    for (size k = first; k < last; k++) {
        float *const matrix = stack + k * area * (pairs ? 2 : 1);
        double squares = 0;
        for (size i = 0; i < area * (pairs ? 2 : 1); i++) squares += (double)matrix[i] * matrix[i];
        const float norm = (float)__builtin_sqrt(squares), scale = 1.0f / (norm > least ? norm : least);
        for (size i = 0; i < rows; i++)
            for (size j = 0; j < width; j++) {
                const size from = i * width + j, to = tall ? j * rows + i : from;
                re[to] = scale * matrix[pairs ? 2 * from : from];
                if (im) im[to] = scale * matrix[2 * from + 1];
            }
        newton_schulz(tall ? width : rows, tall ? rows : width, steps, abc, re, im, aside);
        for (size i = 0; i < rows; i++)
            for (size j = 0; j < width; j++) {
                const size to = i * width + j, from = tall ? j * rows + i : to;
                matrix[pairs ? 2 * to : to] = re[from];
                if (im) matrix[2 * to + 1] = im[from];
            }
    }
}

/* Convolutions of the samples from `first` to before `last`. */
size room_for_convolution(size axes, size c, size k) {
    const size taps = lines(axes, TAPS) * TAPS, planes = lines(axes, READ) * READ;
    return taps * c * k + planes * (2 * plane_of(c * k) + plane_of(GROUP * c) + plane_of(GROUP * k));
}

void convolve(const tiling *q, size first, size last, size c, size k, const float *x, const float *weight,
              const float *bias, float *y, float *room) {
    if (q->axes == 1)
        forward_on(1, q, first, last, c, k, x, weight, bias, y, room);
    else
        forward_on(2, q, first, last, c, k, x, weight, bias, y, room);
}

void convolve_backward(const tiling *q, size first, size last, size c, size k, const float *x, const float *weight,
                       const float *d_y, float *d_x, float *d_weight, float *room) {
    if (q->axes == 1)
        backward_on(1, q, first, last, c, k, x, weight, d_y, d_x, d_weight, room);
    else
        backward_on(2, q, first, last, c, k, x, weight, d_y, d_x, d_weight, room);
}
