"""The C that every kernel begins with: operations that C lacks, and the points that are kept."""

PRELUDE = """\
#include <math.h>
#include <stdint.h>
#include <string.h>

#define EACH static inline __attribute__((always_inline))

/* one instruction, whose answer is b where either is no number; then what is no number stays none. As one condition of both, a loop is not
   vectorised that has a few of them */
EACH double at_least(double a, double b) { return a > b ? a : b; }
EACH double at_most(double a, double b) { return a < b ? a : b; }
EACH double larger(double a, double b) { double c = at_least(a, b); return a == a ? c : a; }
EACH double smaller(double a, double b) { double c = at_most(a, b); return a == a ? c : a; }
EACH double up(double x) { return ceil(x * (1 - copysign(0x1p-49, x))); }
EACH double down(double x) { return floor(x * (1 + copysign(0x1p-49, x))); }

/* log2 rounded up of x rounded up: the bits of n = x - 1, read off the exponent; no tree has no leaves */
EACH double depth(double x) {
    double n = up(x) - 1;
    uint64_t bits;
    memcpy(&bits, &n, 8);
    bits = (bits >> 52) | 0x4330000000000000u;
    double exponent;
    memcpy(&exponent, &bits, 8);
    exponent -= 0x1p52 + 1022;
    double found = n > 0 ? (n < INFINITY ? exponent : n) : 0.0;
    return x > 0 ? found : NAN;
}

/* the remainder with the sign of the divisor */
EACH double modulo(double a, double b) {
    double r = fmod(a, b);
    if (b == 0) return r;
    return r == 0 ? copysign(0.0, b) : ((b < 0) != (r < 0) ? r + b : r);
}
"""

KEEPING = """
typedef struct { double *values; int64_t *numbers; int64_t count, room, kept; double worst; int64_t last; } Kept;

EACH int before(double a, int64_t m, double b, int64_t n) { return a < b || (a == b && m < n); }

/* the first `count` of what is kept become the least, the last of them the greatest of these */
static __attribute__((noinline)) void settle(Kept *best) {
    double *v = best->values;
    int64_t *n = best->numbers, low = 0, high = best->kept - 1, k = best->count - 1;
    if (high < k) return;
    while (low < high) {
        int64_t a = low, b = low + (high - low) / 2, c = high;
        if (before(v[b], n[b], v[a], n[a])) { int64_t t = a; a = b; b = t; }
        if (before(v[c], n[c], v[b], n[b])) b = before(v[c], n[c], v[a], n[a]) ? a : c;
        double pivot = v[b];
        int64_t number = n[b], i = low, j = high;
        while (i <= j) {
            while (before(v[i], n[i], pivot, number)) i++;
            while (before(pivot, number, v[j], n[j])) j--;
            if (i <= j) {
                double x = v[i]; v[i] = v[j]; v[j] = x;
                int64_t m = n[i]; n[i] = n[j]; n[j] = m;
                i++, j--;
            }
        }
        if (k <= j) high = j;
        else if (k >= i) low = i;
        else break;
    }
    best->kept = best->count;
    best->worst = v[k];
    best->last = n[k];
}

static __attribute__((noinline)) void take(Kept *best, const double *row, int64_t length, int64_t first, const int64_t *along) {
    for (int64_t r = 0; r < length; r++) {
        if (!(row[r] <= best->worst)) continue;
        int64_t number = first + along[r];
        if (row[r] == best->worst && number > best->last) continue;
        best->values[best->kept] = row[r];
        best->numbers[best->kept] = number;
        if (++best->kept == best->room) settle(best);
    }
}
"""
