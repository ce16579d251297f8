/* What functional attention does between its two passes over points, head by head: moments over mass, the maps of
   queries, keys and values, the system and its solution. Needs products.h, orthogonal.h and systems.h.

   The words are those of `carrier.py` and `transport_once.py`, for averages of one field: d channels, g functions.
   Fields stand with their channels as rows, (d g). The transport is written once for both of its forms,

       A = s U^T U + r I,   B = A^-1 U^T R,   result = L B,

   in the primal form with L = v~, U = k~, R = q~ as they stand, so that B = C^T; in the dual form with L = q~, U = k~,
   R = v~, functions as rows. All are (m n), with systems of n x n. */

typedef struct {
    size count, heads, d, g;     /* systems, of which each sample has `heads` */
    size f, e;                   /* channels of the sums and of the result; d where no maps are left to do */
    float epsilon;               /* of the mean mass, which is added to each */
    const float *sums;           /* moments, then the mass: (count, f + 1, g), or (samples, f + 1, heads g) for field_map */
    const float *field_map;      /* (heads d, f): makes the field of the moments; or NULL */
    const float *bias;           /* (heads, d) of the field, or NULL */
    const float *maps;           /* (3 d, d): queries, keys, values */
    const float *output;         /* (e, heads d): a map of the result, or NULL */
    const float *strength;       /* (count): of the ridge */
    size convex;                 /* whether s = 1 - strength, else 1; r is the strength */
    size primal;
    float *kept;                 /* (count, kept_for_middle): for the gradient */
    float *room;                 /* room_for_middle */
} middle;

typedef struct {
    float *d_field, *d_mapped, *aside, *d_result, *turned, *d_solved, *d_system, *both, *solved_turned, *d_divisor;
} room_of_middle;

typedef struct {
    float *field, *mapped, *divisor, *gram, *factor, *solved, *result;
    const float *moments, *mass;
    size head;
} parts_of_middle;

static size unknowns(const middle *q) { return q->primal ? q->g : q->d; }
static size row_of_sums(const middle *q) { return q->field_map ? q->heads * q->g : q->g; }

size kept_for_middle(const middle *q) {
    return 5 * q->d * q->g + q->g + 3 * unknowns(q) * unknowns(q);
}

size room_for_middle(const middle *q) {
    const size of_field = q->d * q->g, backward = 8 * of_field + q->f * q->g + 4 * unknowns(q) * unknowns(q) + q->g;
    const size forward = 3 * of_field + unknowns(q) + (q->output ? q->heads * q->d * q->e : 0);
    return forward > backward ? forward : backward;
}

/* Where the moments of a system begin in what is laid out as the sums. */
static size start_of_sums(const middle *q, size place) {
    if (!q->field_map) return place * (q->f + 1) * q->g;
    return place / q->heads * (q->f + 1) * row_of_sums(q) + place % q->heads * q->g;
}

static parts_of_middle parts_at(const middle *q, size place) {
    const size of_field = q->d * q->g, square = unknowns(q) * unknowns(q);
    float *const field = q->kept + place * kept_for_middle(q), *const mapped = field + of_field;
    float *const result = mapped + 3 * of_field, *const divisor = result + of_field, *const gram = divisor + q->g;
    const float *moments = q->sums + start_of_sums(q, place);
    return (parts_of_middle){
        field, mapped, divisor, gram, gram + square, gram + 2 * square, result,
        moments, moments + q->f * row_of_sums(q), place % q->heads,
    };
}

static float scale_at(const middle *q, size place) { return q->convex ? 1 - q->strength[place] : 1; }

/* The coefficients of the field: moments, mapped, over mass. */
static void field_of(const middle *q, parts_of_middle at) {
    const size d = q->d, g = q->g, row = row_of_sums(q);
    const float *bias = q->bias ? q->bias + at.head * d : NULL, *from = at.moments;
    size from_row = row;
    if (q->field_map) {
        product(d, g, q->f, (strided){q->field_map + at.head * d * q->f, q->f, 1}, (right){at.moments, row, NULL, 0}, at.field, g, 0);
        from = at.field, from_row = g;
    }
    float total = 0;
    for (size j = 0; j < g; j++) total += at.mass[j];
    for (size j = 0; j < g; j++) at.divisor[j] = at.mass[j] + q->epsilon * (total / g);
    for (size i = 0; i < d; i++)
        for (size j = 0; j < g; j++)
            at.field[i * g + j] = (from[i * from_row + j] + (bias ? bias[i] * at.mass[j] : 0)) / at.divisor[j];
}

/* Whether the system is not positive definite, or has a ridge by which it need not be. */
static int transport(const middle *q, size place, parts_of_middle at, float *column) {
    const size n = unknowns(q), m = q->primal ? q->d : q->g, area = m * n;
    const float shift = q->strength[place], scale = scale_at(q, place);
    const float *l = at.mapped + (q->primal ? 2 : 0) * area, *u = at.mapped + area, *r = at.mapped + (q->primal ? 0 : 2) * area;
    if (!(shift > 0 && shift < __builtin_inff() && scale >= 0)) return 1;
    product(n, n, m, (strided){u, 1, n}, (right){u, n, NULL, 0}, at.gram, n, 0);
    product(n, n, m, (strided){u, 1, n}, (right){r, n, NULL, 0}, at.solved, n, 0);
    for (size i = 0; i < n; i++)
        for (size j = 0; j < n; j++) at.factor[i * n + j] = scale * at.gram[i * n + j] + (i == j ? shift : 0);
    if (cholesky(n, at.factor, column)) return 1;
    solve(n, at.factor, at.solved);
    plain_product(m, n, n, l, at.solved, at.result, 0);
    return 0;
}

/* out (count g e); fills what is kept. Returns how many systems could not be solved. */
size middle_forward(const middle *q, float *out) {
    const size d = q->d, g = q->g, e = q->e;
    float *const beside = q->room, *const column = beside + 3 * d * g, *const output = column + unknowns(q);
    size failed = 0;
    if (q->output) transposed(e, q->heads * d, q->output, output);
    for (size place = 0; place < q->count; place++, out += g * e) {
        const parts_of_middle at = parts_at(q, place);
        field_of(q, at);
        plain_product(3 * d, g, d, q->maps, at.field, q->primal ? at.mapped : beside, 0);
        if (!q->primal)
            for (size i = 0; i < 3; i++) transposed(d, g, beside + i * d * g, at.mapped + i * d * g);
        if (transport(q, place, at, column)) {
            failed++;
            continue;
        }
        const strided result = q->primal ? (strided){at.result, 1, g} : (strided){at.result, d, 1};
        if (q->output)
            product(g, e, d, result, (right){output + at.head * d * e, e, NULL, 0}, out, e, 0);
        else if (q->primal)
            transposed(d, g, at.result, out);
        else
            memcpy(out, at.result, d * g * sizeof(float));
    }
    return failed;
}

typedef struct {
    float *sums, *field_map, *bias, *maps, *output, *strength; /* all but sums and strengths are added to */
} d_middle;

/* d_mapped, from that of the result. */
static void transport_backward(const middle *q, size place, parts_of_middle at, const float *d_result, room_of_middle by,
                               float *d_strength) {
    const size n = unknowns(q), m = q->primal ? q->d : q->g, area = m * n, left = q->primal ? 2 : 0, other = 2 - left;
    const float *l = at.mapped + left * area, *u = at.mapped + area, *r = at.mapped + other * area;
    transposed(n, n, at.solved, by.solved_turned);
    plain_product(m, n, n, d_result, by.solved_turned, by.d_mapped + left * area, 0);
    product(n, n, m, (strided){l, 1, n}, (right){d_result, n, NULL, 0}, by.d_solved, n, 0);
    solve(n, at.factor, by.d_solved); /* A^-1 dB, which is the gradient of U^T R */
    plain_product(m, n, n, u, by.d_solved, by.d_mapped + other * area, 0);
    plain_product(n, n, n, by.d_solved, by.solved_turned, by.d_system, 0);
    double of_scale = 0, of_shift = 0; /* single numbers, of sums that cancel */
    for (size i = 0; i < n; i++) {
        of_shift -= by.d_system[i * n + i];
        for (size j = 0; j < n; j++) {
            of_scale -= (double)by.d_system[i * n + j] * at.gram[i * n + j];
            by.both[i * n + j] = -scale_at(q, place) * (by.d_system[i * n + j] + by.d_system[j * n + i]);
        }
    }
    d_strength[place] = (float)(q->convex ? of_shift - of_scale : of_shift);
    transposed(n, n, by.d_solved, by.solved_turned);
    plain_product(m, n, n, r, by.solved_turned, by.d_mapped + area, 0);
    plain_product(m, n, n, u, by.both, by.d_mapped + area, 1);
}

/* The gradient of the result before its last map, and of that map. */
static const float *d_result_of(const middle *q, parts_of_middle at, const float *d_out, room_of_middle by, const d_middle *to) {
    const size d = q->d, g = q->g, e = q->e, row = q->heads * d;
    if (!q->output) {
        if (q->primal) return d_out;
        transposed(d, g, d_out, by.d_result);
        return by.d_result;
    }
    const float *map = q->output + at.head * d, *result = at.result;
    if (q->primal) transposed(d, g, at.result, by.turned), result = by.turned;
    product(e, d, g, (strided){d_out, g, 1}, (right){result, d, NULL, 0}, to->output + at.head * d, row, 1);
    if (q->primal)
        product(d, g, e, (strided){map, 1, row}, (right){d_out, g, NULL, 0}, by.d_result, g, 0);
    else
        product(g, d, e, (strided){d_out, 1, g}, (right){map, row, NULL, 0}, by.d_result, d, 0);
    return by.d_result;
}

/* The field is a quotient, of a map of the moments. */
static void field_backward(const middle *q, size place, parts_of_middle at, room_of_middle by, const d_middle *to) {
    const size d = q->d, g = q->g, f = q->f, row = row_of_sums(q);
    float *const d_moments = to->sums + start_of_sums(q, place), *const d_mass = d_moments + f * row;
    float *const parts = q->field_map ? by.d_field : d_moments; /* where there is a map, it comes between */
    const size parts_row = q->field_map ? g : row;
    float total = 0;
    for (size j = 0; j < g; j++) by.d_divisor[j] = d_mass[j] = 0;
    for (size i = 0; i < d; i++) {
        const float b = q->bias ? q->bias[at.head * d + i] : 0;
        float of_bias = 0;
        for (size j = 0; j < g; j++) {
            const float part = by.d_field[i * g + j] / at.divisor[j];
            parts[i * parts_row + j] = part;
            of_bias += at.mass[j] * part;
            d_mass[j] += b * part;
            by.d_divisor[j] -= part * at.field[i * g + j];
        }
        if (to->bias) to->bias[at.head * d + i] += of_bias;
    }
    for (size j = 0; j < g; j++) total += by.d_divisor[j];
    for (size j = 0; j < g; j++) d_mass[j] += by.d_divisor[j] + q->epsilon * (total / g);
    if (!q->field_map) return;
    const size start = at.head * d * f;
    transposed_rows(f, g, at.moments, row, by.turned);
    plain_product(d, f, g, parts, by.turned, to->field_map + start, 1);
    product(f, g, d, (strided){q->field_map + start, 1, f}, (right){parts, g, NULL, 0}, d_moments, row, 0);
}

/* The gradients, from that of the result (count e g). */
void middle_backward(const middle *q, const float *d_out, const d_middle *to) {
    const size d = q->d, g = q->g, area = d * g, square = unknowns(q) * unknowns(q);
    room_of_middle by = {.d_field = q->room};
    by.d_mapped = by.d_field + area, by.aside = by.d_mapped + 3 * area, by.d_result = by.aside, by.turned = by.aside + 3 * area;
    by.d_solved = by.turned + area + q->f * g, by.d_system = by.d_solved + square, by.both = by.d_system + square;
    by.solved_turned = by.both + square, by.d_divisor = by.solved_turned + square;
    for (size place = 0; place < q->count; place++) {
        const parts_of_middle at = parts_at(q, place);
        const float *d_result = d_result_of(q, at, d_out + place * q->e * g, by, to);
        transport_backward(q, place, at, d_result, by, to->strength);
        const float *d_mapped = by.d_mapped;
        if (!q->primal) { /* channels as rows again; the gradient of the result has been read */
            for (size i = 0; i < 3; i++) transposed(g, d, by.d_mapped + i * area, by.aside + i * area);
            d_mapped = by.aside;
        }
        transposed(d, g, at.field, by.turned);
        plain_product(3 * d, d, g, d_mapped, by.turned, to->maps, 1);
        product(d, g, 3 * d, (strided){q->maps, 1, d}, (right){d_mapped, g, NULL, 0}, by.d_field, g, 0);
        field_backward(q, place, at, by, to);
    }
}
