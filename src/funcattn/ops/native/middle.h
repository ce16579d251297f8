/* What functional attention does between its two passes over points, head by head: moments over mass, the maps of
   queries, keys and values, the system and its solution. Needs products.h and orthogonal.h.

   The words are those of `carrier.py` and `transport_once.py`, for averages of one field and in the dual form:
   d channels, g functions, A = s k~^T k~ + r I and M = A^-1 k~^T v~. Fields stand with their channels as rows (d g). */

typedef struct {
    size count, heads, d, g;     /* systems, of which each sample has `heads` */
    float epsilon;               /* of the mean mass, which is added to each */
    const float *sums;           /* (count, d + 1, g): moments, then the mass */
    const float *bias;           /* (heads, d) of the field, or NULL */
    const float *maps;           /* (3 d, d): queries, keys, values */
    const float *strength;       /* (count): of the ridge */
    size convex;                 /* whether s = 1 - strength, else 1; r is the strength */
    float *kept;                 /* (count, kept_for_middle): for the gradient */
    float *room;                 /* room_for_middle */
} middle;

typedef struct {
    float *field, *mapped, *divisor, *gram, *factor, *map;
} parts_of_middle;

size kept_for_middle(size d, size g) { return 4 * d * g + g + 3 * d * d; }
size room_for_middle(size d, size g) { return 4 * d * g + 4 * d * d + 2 * d * g + 2 * g; }

static parts_of_middle kept_at(const middle *q, size place) {
    const size d = q->d, g = q->g;
    float *const field = q->kept + place * kept_for_middle(d, g), *const mapped = field + d * g;
    float *const divisor = mapped + 3 * d * g, *const gram = divisor + g;
    return (parts_of_middle){field, mapped, divisor, gram, gram + d * d, gram + 2 * d * d};
}

/* The lower factor of A in its place; whether A is not positive definite. */
static int cholesky(size d, float *a, float *column) {
    for (size j = 0; j < d; j++) {
        const float pivot = a[j * d + j];
        if (!(pivot > 0 && pivot < __builtin_inff())) return 1;
        const float by = 1 / __builtin_sqrtf(pivot);
        for (size i = j; i < d; i++) column[i] = a[i * d + j] *= by;
        for (size i = j + 1; i < d; i++)
            for (size k = j + 1; k <= i; k++) a[i * d + k] -= column[i] * column[k];
    }
    return 0;
}

/* X <- (L L^T)^-1 X, (d d). */
static void solve(size d, const float *l, float *x) {
    for (size i = 0; i < d; i++) {
        for (size k = 0; k < i; k++)
            for (size j = 0; j < d; j++) x[i * d + j] -= l[i * d + k] * x[k * d + j];
        for (size j = 0; j < d; j++) x[i * d + j] /= l[i * d + i];
    }
    for (size i = d; i-- > 0;) {
        for (size k = i + 1; k < d; k++)
            for (size j = 0; j < d; j++) x[i * d + j] -= l[k * d + i] * x[k * d + j];
        for (size j = 0; j < d; j++) x[i * d + j] /= l[i * d + i];
    }
}

static float scale_at(const middle *q, size place) { return q->convex ? 1 - q->strength[place] : 1; }

/* out (count g d) = q~ M; fills what is kept. Returns how many systems are not positive definite, or have a ridge by
   which they need not be. */
size middle_forward(const middle *q, float *out) {
    const size d = q->d, g = q->g;
    size failed = 0;
    for (size place = 0; place < q->count; place++) {
        const float shift = q->strength[place], scale = scale_at(q, place);
        if (!(shift > 0 && shift < __builtin_inff() && scale >= 0)) {
            failed++;
            continue;
        }
        const parts_of_middle at = kept_at(q, place);
        const float *moments = q->sums + place * (d + 1) * g, *mass = moments + d * g;
        const float *bias = q->bias ? q->bias + place % q->heads * d : NULL;
        float total = 0;
        for (size j = 0; j < g; j++) total += mass[j];
        for (size j = 0; j < g; j++) at.divisor[j] = mass[j] + q->epsilon * (total / g);
        for (size i = 0; i < d; i++)
            for (size j = 0; j < g; j++)
                at.field[i * g + j] = (moments[i * g + j] + (bias ? bias[i] * mass[j] : 0)) / at.divisor[j];
        plain_product(3 * d, g, d, q->maps, at.field, at.mapped, 0);
        const float *const key = at.mapped + d * g;
        float *const turned = q->room, *const both = turned + 2 * d * g;
        transposed(2 * d, g, key, turned); /* keys and values, (g 2d) */
        plain_product(d, 2 * d, g, key, turned, both, 0);
        for (size i = 0; i < d; i++)
            for (size j = 0; j < d; j++) {
                at.gram[i * d + j] = both[i * 2 * d + j];
                at.factor[i * d + j] = scale * both[i * 2 * d + j] + (i == j ? shift : 0);
                at.map[i * d + j] = both[i * 2 * d + d + j];
            }
        if (cholesky(d, at.factor, both)) {
            failed++;
            continue;
        }
        solve(d, at.factor, at.map);
        product(g, d, d, (strided){at.mapped, 1, g}, (right){at.map, d, NULL, 0}, out + place * g * d, d, 0);
    }
    return failed;
}

/* From that of the result (count d g) the gradients of the sums and strengths, and of bias and maps, which are added
   to. */
void middle_backward(const middle *q, const float *d_out, float *d_sums, float *d_bias, float *d_maps,
                     float *d_strength) {
    const size d = q->d, g = q->g, square = d * d;
    float *const d_mapped = q->room, *const d_field = d_mapped + 3 * d * g, *const turned = d_field + d * g;
    float *const right_side = turned + d * g, *const d_system = right_side + square, *const both = d_system + square;
    float *const d_divisor = both + square;
    for (size place = 0; place < q->count; place++) {
        const parts_of_middle at = kept_at(q, place);
        const float *query = at.mapped, *key = query + d * g, *value = key + d * g, *d_here = d_out + place * d * g;
        const float *mass = q->sums + place * (d + 1) * g + d * g;
        plain_product(d, g, d, at.map, d_here, d_mapped, 0);
        transposed(d, g, d_here, turned);
        plain_product(d, d, g, query, turned, right_side, 0);
        solve(d, at.factor, right_side); /* A^-1 dM, which is the gradient of k~^T v~ */
        product(d, g, d, (strided){right_side, 1, d}, (right){key, g, NULL, 0}, d_mapped + 2 * d * g, g, 0);
        transposed(d, d, at.map, both);
        plain_product(d, d, d, right_side, both, d_system, 0);
        float of_scale = 0, of_shift = 0;
        for (size i = 0; i < d; i++) {
            of_shift -= d_system[i * d + i];
            for (size j = 0; j < d; j++) {
                of_scale -= d_system[i * d + j] * at.gram[i * d + j];
                both[i * d + j] = -scale_at(q, place) * (d_system[i * d + j] + d_system[j * d + i]);
            }
        }
        d_strength[place] = q->convex ? of_shift - of_scale : of_shift;
        plain_product(d, g, d, right_side, value, d_mapped + d * g, 0);
        plain_product(d, g, d, both, key, d_mapped + d * g, 1);
        transposed(d, g, at.field, turned);
        plain_product(3 * d, d, g, d_mapped, turned, d_maps, 1);
        product(d, g, 3 * d, (strided){q->maps, 1, d}, (right){d_mapped, g, NULL, 0}, d_field, g, 0);
        /* The field is a quotient. */
        float *const to = d_sums + place * (d + 1) * g, *const d_mass = to + d * g;
        float total = 0;
        for (size j = 0; j < g; j++) d_divisor[j] = d_mass[j] = 0;
        for (size i = 0; i < d; i++) {
            const float b = q->bias ? q->bias[place % q->heads * d + i] : 0;
            float of_bias = 0;
            for (size j = 0; j < g; j++) {
                const float part = d_field[i * g + j] / at.divisor[j];
                to[i * g + j] = part;
                of_bias += mass[j] * part;
                d_mass[j] += b * part;
                d_divisor[j] -= part * at.field[i * g + j];
            }
            if (d_bias) d_bias[place % q->heads * d + i] += of_bias;
        }
        for (size j = 0; j < g; j++) total += d_divisor[j];
        for (size j = 0; j < g; j++) d_mass[j] += d_divisor[j] + q->epsilon * (total / g);
    }
}
