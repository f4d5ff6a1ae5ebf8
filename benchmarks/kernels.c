/* A blocked multiplication of matrices, C += A B, in the many ways that benchmarks/kernels.py
 * compiles it: TILE_M, TILE_N, TILE_K (block sizes), AT_ONCE (rows of C that share a row of B),
 * ORDER (which of the block loops is outside), PACK (whether a block of B is copied first). */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define OVER(i, size, step) for (int i = 0; i < (size); i += (step))

#if ORDER == 0
#define BLOCKS OVER(i0, m, TILE_M) OVER(k0, k, TILE_K) OVER(j0, n, TILE_N)
#elif ORDER == 1
#define BLOCKS OVER(k0, k, TILE_K) OVER(j0, n, TILE_N) OVER(i0, m, TILE_M)
#else
#define BLOCKS OVER(j0, n, TILE_N) OVER(i0, m, TILE_M) OVER(k0, k, TILE_K)
#endif

#if PACK
static float block[TILE_K * TILE_N];
#define B_AT(p, j) block[((p) - k0) * TILE_N + (j) - j0]
#else
#define B_AT(p, j) b[(long)(p) * n + (j)]
#endif

static void multiply(const float *a, const float *b, float *c, int m, int n, int k) {
    BLOCKS {
        int i1 = LEAST(i0 + TILE_M, m), j1 = LEAST(j0 + TILE_N, n), k1 = LEAST(k0 + TILE_K, k);
#if PACK
        for (int p = k0; p < k1; p++)
            memcpy(block + (p - k0) * TILE_N, b + (long)p * n + j0, sizeof(float) * (j1 - j0));
#endif
        int i = i0;
        for (; i + AT_ONCE <= i1; i += AT_ONCE)
            for (int p = k0; p < k1; p++)
                for (int j = j0; j < j1; j++) {
                    float one = B_AT(p, j);
#pragma GCC unroll 8
                    for (int r = 0; r < AT_ONCE; r++)
                        c[(long)(i + r) * n + j] += a[(long)(i + r) * k + p] * one;
                }
        for (; i < i1; i++)
            for (int p = k0; p < k1; p++)
                for (int j = j0; j < j1; j++)
                    c[(long)i * n + j] += a[(long)i * k + p] * B_AT(p, j);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Gflop/s of an (m, k) times a (k, n) matrix, repeated for so many seconds; 0 without memory. */
double measure(int m, int n, int k, double seconds) {
    float *a = calloc((size_t)m * k, sizeof(float)), *b = calloc((size_t)k * n, sizeof(float));
    float *c = calloc((size_t)m * n, sizeof(float));
    double speed = 0.0;
    if (a && b && c) {
        long runs = 0;
        multiply(a, b, c, m, n, k); /* the first one warms up */
        double began = now(), took;
        do {
            multiply(a, b, c, m, n, k);
            runs++;
            took = now() - began;
        } while (took < seconds);
        speed = 2e-9 * m * n * k * runs / took;
    }
    free(a);
    free(b);
    free(c);
    return speed;
}
