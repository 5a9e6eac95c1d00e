/* The regression kernels alone, without the session: bits against a plain host reference on small
 * shapes, then times on large ones. Built by hand where there is nvcc (tests/bench/README.md);
 * prints a table, exits 1 on the first difference. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

#include "gpu/kernels/forward_dense.cu"
#undef WARPS
#undef TILE_ROWS
#undef BLOCK
#include "gpu/kernels/backward_dense.cu"
#undef PASSES
#undef WARPS
#undef LEVELS
#include "gpu/kernels/update.cu"
#undef WARPS
#undef LEVELS
#undef PIECE
#include "gpu/kernels/forward_sparse.cu"
#undef PIECE
#undef LEVELS
#include "gpu/kernels/backward_sparse.cu"
#undef PIECE
#undef LEVELS
#undef PASSES
#include "gpu/kernels/fused.cu"
#undef PASSES
#include "gpu/kernels/tiles.cu"
#include "numerics/dyadic.h"
#include "numerics/nodes.h"

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t e = (call);                                                         \
        if (e != cudaSuccess) {                                                         \
            printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

template <class T> static T *device(size_t count)
{
    T *p;
    CHECK(cudaMalloc(&p, count * sizeof(T) + 64));
    CHECK(cudaMemset(p, 0, count * sizeof(T) + 64));
    return p;
}

template <class T> static T *upload(const std::vector<T> &v)
{
    T *p = device<T>(v.size());
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> static std::vector<T> download(const T *p, size_t count)
{
    std::vector<T> v(count);
    CHECK(cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

static uint64_t seed = 88172645463325252ULL;
static uint64_t rnd()
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static __global__ void fill(float *x, size_t n, unsigned s)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t z = (i + s) * 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z ^= z >> 27;
        x[i] = (float)(int)(z & 0xffffff) * (1.0F / 8388608.0F) - 1.0F;
    }
}

static std::vector<segment> segments_of(uint64_t first, uint64_t end, unsigned level_max)
{
    std::vector<segment> out;
    node nodes[NODES_MAX];
    size_t n = nodes_cover(first, end, nodes);
    for (size_t k = 0; k < n; k++) {
        unsigned level = std::min(nodes[k].level, level_max);
        for (uint64_t i = 0; i < 1ULL << (nodes[k].level - level); i++) {
            segment s;
            s.index = (nodes[k].index << (nodes[k].level - level)) + i;
            s.first = (uint32_t)((s.index << level) - first);
            s.level = level;
            s.node = (uint32_t)k;
            s.node_level = nodes[k].level;
            out.push_back(s);
        }
    }
    return out;
}

struct problem {
    uint64_t rows, d;
    bool icpt;
    uint64_t coords() const
    {
        return d + icpt;
    }
};

struct dense {
    problem p;
    uint64_t ld, stride, panels;
    float *x, *w32, *r32;
    double *y, *r, *losses, *partials, *scratch, *w, *a;
    uint64_t *tickets;
    segment *segs;
    size_t nsegs;
    unsigned warps;
    step_state *state;
    step_result *results;
    unsigned splits;
    // tiles
    float *tiles = nullptr;
    double *yt = nullptr, *upart = nullptr, *uloss = nullptr;
    uint64_t rf = 0;
    int ct = 0;
    uint64_t outside = NO_COLUMN;
};

static void start(dense &s, problem p, const float *host_x, const double *host_y, bool tiles)
{
    s.p = p;
    s.ld = (p.rows + 3) / 4 * 4 + 4;
    s.stride = (std::max<uint64_t>(p.coords(), 1) + 3) / 4 * 4 + 4;
    s.panels = panels_of(p.rows);
    if (host_x != nullptr) {
        s.x = device<float>(s.ld * p.d);
        CHECK(cudaMemcpy2D(s.x, s.ld * 4, host_x, p.rows * 4, p.rows * 4, p.d,
                           cudaMemcpyHostToDevice));
    } else {
        s.x = device<float>(s.ld * p.d);
        fill<<<1024, 256>>>(s.x, s.ld * p.d, 1);
    }
    std::vector<double> y(p.rows + PANEL_ROWS);
    for (uint64_t i = 0; i < p.rows; i++) {
        y[i] = host_y != nullptr ? host_y[i] : (double)(i % 97) * 0.01;
    }
    s.y = upload(y);
    s.w32 = device<float>(std::max<uint64_t>(s.stride, 1032));
    s.r32 = device<float>(p.rows + PANEL_ROWS);
    s.r = device<double>(p.rows + PANEL_ROWS);
    s.losses = device<double>(s.panels * 4);
    s.partials = device<double>(s.panels * s.stride);
    s.scratch = device<double>(64 * s.stride);
    s.w = device<double>(s.stride);
    s.a = device<double>(s.stride);
    s.tickets = device<uint64_t>(s.stride);
    s.state = device<step_state>(1);
    CHECK(cudaMallocHost(&s.results, 4 * sizeof(step_result)));
    step_state st = {};
    st.rows_count = p.rows;
    st.bad_step = st.bad_place = UINT64_MAX;
    st.rate = 0.01;
    st.decay = 0.9;
    st.l2 = 0.001;
    CHECK(cudaMemcpy(s.state, &st, sizeof(st), cudaMemcpyHostToDevice));
    unsigned level = 4;
    while (level < 7 && p.coords() >> level >= 8) {
        level++;
    }
    if (p.coords() <= 16) {
        level = 2;
    }
    auto segs = segments_of(0, p.coords(), level);
    s.nsegs = segs.size();
    s.segs = upload(segs);
    s.warps = 1;
    while (s.warps < 8 && s.warps < s.nsegs) {
        s.warps *= 2;
    }
    if (tiles) {
        s.ct = 32;
        while ((uint64_t)s.ct * 4 < p.d) {
            s.ct *= 2;
        }
        bool out = p.icpt && p.d == (uint64_t)s.ct * 4;
        s.outside = out ? p.d : NO_COLUMN;
        uint64_t cols = p.d + (p.icpt && !out ? 1 : 0);
        s.rf = (cols + 3) / 4 * 4;
        s.tiles = device<float>(s.panels * PANEL_ROWS * s.rf);
        s.upart = device<double>(s.panels * UNITS_A_PANEL * s.stride);
        s.uloss = device<double>(s.panels * UNITS_A_PANEL);
        std::vector<double> yt(s.panels * PANEL_ROWS);
        for (uint64_t i = 0; i < p.rows; i++) {
            uint64_t in = i % PANEL_ROWS;
            yt[i / PANEL_ROWS * PANEL_ROWS + in % 128 * 16 + in / 128] = y[i];
        }
        s.yt = upload(yt);
        uint64_t sr = 8 * PANEL_ROWS;
        float *stage = device<float>(sr * p.d);
        for (uint64_t first = 0; first < p.rows; first += sr) {
            uint64_t n = std::min(sr, p.rows - first);
            CHECK(cudaMemcpy2D(stage, sr * 4, s.x + first, s.ld * 4, n * 4, p.d,
                               cudaMemcpyDeviceToDevice));
            pack_args a = {
                stage,  sr, n, p.d, p.icpt && !out ? p.d : NO_COLUMN, s.rf, first / PANEL_ROWS,
                s.tiles};
            pack_tiles<<<dim3((unsigned)((s.rf + 31) / 32), 4, (unsigned)panels_of(n)), 256>>>(a);
            CHECK(cudaGetLastError());
        }
        CHECK(cudaDeviceSynchronize());
        cudaFree(stage);
    }
}

static row_view local_view()
{
    row_view v = {};
    v.local = 1;
    return v;
}

static void launch_forward(dense &s, cudaStream_t q)
{
    forward_dense_args a = {};
    a.x = s.x, a.ld = s.ld, a.w32 = s.w32, a.intercept = s.p.icpt ? s.p.d : NO_COLUMN;
    a.segments = s.segs, a.segments_count = s.nsegs, a.column_warps = s.warps;
    a.levels = 1;
    while (a.levels < 64 && s.p.coords() >> a.levels != 0) {
        a.levels++;
    }
    a.view = local_view(), a.y = s.y, a.residual = s.r, a.residual32 = s.r32, a.state = s.state;
    uint64_t rows = 128 * (8 / s.warps);
    size_t shared = (2 * 8 * 128 + a.levels * rows) * 8;
    CHECK(cudaFuncSetAttribute(forward_dense, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)shared));
    forward_dense<<<(unsigned)((s.p.rows + rows - 1) / rows), 256, shared, q>>>(a);
}

static void launch_backward(dense &s, cudaStream_t q, uint64_t per)
{
    backward_dense_args a = {};
    a.x = s.x, a.ld = s.ld, a.columns = s.p.coords();
    a.intercept = s.p.icpt ? s.p.d : NO_COLUMN;
    a.columns_a_block = per, a.view = local_view(), a.residual32 = s.r32, a.residual = s.r;
    a.losses = s.losses, a.losses_stride = s.panels, a.partials = s.partials;
    a.columns_stride = s.stride, a.state = s.state;
    backward_dense<<<dim3((unsigned)s.panels, (unsigned)((s.p.coords() + per - 1) / per)), 256, 0,
                     q>>>(a);
}

static void launch_update(dense &s, cudaStream_t q, bool fused)
{
    update_args a = {};
    a.partials = fused ? s.upart : s.partials;
    a.columns_stride = s.stride, a.columns = s.p.coords();
    a.parts_a_panel = fused ? UNITS_A_PANEL : 1;
    a.intercept = s.p.icpt ? s.p.d : NO_COLUMN, a.view = local_view(), a.scratch = s.scratch;
    a.tickets = s.tickets, a.unit_losses = fused ? s.uloss : nullptr, a.losses = s.losses;
    a.losses_stride = s.panels, a.parameter = s.w, a.accumulator = s.a, a.w32 = s.w32;
    a.state = s.state, a.results = s.results, a.results_count = 4, a.rows_total = s.p.rows;
    a.batch_rows = s.p.rows, a.retires = 1;
    uint64_t parts = s.panels * a.parts_a_panel;
    unsigned splits = 1;
    while (splits < 32 && parts > splits * 64ULL) {
        splits *= 2;
    }
    update<<<dim3((unsigned)((s.p.coords() + 31) / 32), splits), 256, 0, q>>>(a);
}

static void launch_fused(dense &s, cudaStream_t q)
{
    fused_args a = {};
    a.tiles = s.tiles, a.y_tiles = s.yt, a.row_floats = s.rf, a.w32 = s.w32;
    a.outside = s.outside, a.partials = s.upart, a.columns_stride = s.stride;
    a.unit_losses = s.uloss, a.state = s.state;
    size_t shared = (size_t)(512 / s.ct) * 16 * s.rf * 4 + 4 * 32 * 512;
    void (*k)(fused_args) = s.ct == 32    ? fused_32
                            : s.ct == 64  ? fused_64
                            : s.ct == 128 ? fused_128
                                          : fused_256;
    CHECK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    k<<<132, 512, shared, q>>>(a);
}

static int differs(const char *what, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes) == 0) {
        return 0;
    }
    const double *p = (const double *)a;
    const double *q = (const double *)b;
    size_t bad = 0, first = 0;
    for (size_t i = bytes / 8; i-- > 0;) {
        if (memcmp(&p[i], &q[i], 8) != 0) {
            bad++;
            first = i;
        }
    }
    printf("DIFFERS %s: %zu of %zu, first %zu: %a device, %a host\n", what, bad, bytes / 8, first,
           p[first], q[first]);
    return 1;
}

/* One step on the host, plainly. */
struct host_state {
    std::vector<double> w, a, losses;
};

static void host_step(problem p, const std::vector<float> &x, const std::vector<double> &y,
                      host_state &h)
{
    uint64_t c = p.coords();
    std::vector<double> r(p.rows);
    std::vector<float> w32(c);
    for (uint64_t j = 0; j < c; j++) {
        w32[j] = rn32(h.w[j]);
    }
    for (uint64_t i = 0; i < p.rows; i++) {
        struct dyadic s;
        dyadic_start(&s);
        for (uint64_t j = 0; j < c; j++) {
            dyadic_add(&s, product(w32[j], j < p.d ? x[j * p.rows + i] : 1.0F));
        }
        r[i] = squared_residual(canon(dyadic_root(&s)), y[i]);
    }
    uint64_t panels = panels_of(p.rows);
    h.losses.assign(panels, 0.0);
    for (uint64_t j = 0; j <= c; j++) { /* c: the loss */
        struct dyadic s;
        dyadic_start(&s);
        for (uint64_t k = 0; k < panels; k++) {
            double lanes[PANEL_LANES] = {};
            for (uint64_t i = k * PANEL_ROWS; i < std::min((k + 1) * PANEL_ROWS, p.rows); i++) {
                double term = j == c ? squared_loss(r[i])
                                     : product(rn32(r[i]), j < p.d ? x[j * p.rows + i] : 1.0F);
                lanes[i % PANEL_LANES] += term;
            }
            double v = lanes_root(lanes);
            if (j == c) {
                h.losses[k] = v;
            }
            dyadic_add(&s, v);
        }
        if (j < c) {
            double g =
                momentum_gradient(dyadic_root(&s), (double)p.rows, j < p.d ? 0.001 : 0.0, h.w[j]);
            h.a[j] = momentum_accumulator(0.9, h.a[j], g);
            h.w[j] = momentum_parameter(0.01, h.a[j], h.w[j]);
        }
    }
}

static void free_all(dense &s)
{
    void *list[] = {s.x, s.w32,     s.r32,  s.y,     s.r,     s.losses, s.partials, s.scratch, s.w,
                    s.a, s.tickets, s.segs, s.state, s.tiles, s.yt,     s.upart,    s.uloss};
    for (void *p : list) {
        cudaFree(p);
    }
    cudaFreeHost(s.results);
}

static int check(problem p)
{
    std::vector<float> x(p.rows * p.d);
    std::vector<double> y(p.rows);
    for (auto &v : x) {
        uint64_t z = rnd();
        v = (float)((double)(int64_t)z * 0x1p-62);
        if ((z & 255) == 7) {
            v = z & 256 ? 0.0F : ldexpf(v, -130);
        }
    }
    for (auto &v : y) {
        v = (double)(int64_t)rnd() * 0x1p-60;
    }
    host_state h;
    h.w.assign(p.coords(), 0.0);
    h.a.assign(p.coords(), 0.0);
    dense s, f;
    bool tiles = p.d <= 1024;
    start(s, p, x.data(), y.data(), false);
    if (tiles) {
        start(f, p, x.data(), y.data(), true);
    }
    int bad = 0;
    for (int step = 0; step < 3 && bad == 0; step++) {
        host_step(p, x, y, h);
        launch_forward(s, 0);
        launch_backward(s, 0, 64);
        launch_update(s, 0, false);
        if (tiles) {
            launch_fused(f, 0);
            launch_update(f, 0, true);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        for (int k = 0; k < 1 + tiles; k++) {
            dense &t = k ? f : s;
            const char *name = k ? "fused" : "two-pass";
            char text[64];
            auto l = download(t.losses + (step % 4) * t.panels, t.panels);
            snprintf(text, sizeof(text), "%s loss step %d", name, step);
            bad += differs(text, l.data(), h.losses.data(), l.size() * 8);
            auto w = download(t.w, p.coords());
            snprintf(text, sizeof(text), "%s w step %d", name, step);
            bad += differs(text, w.data(), h.w.data(), w.size() * 8);
            auto a = download(t.a, p.coords());
            snprintf(text, sizeof(text), "%s a step %d", name, step);
            bad += differs(text, a.data(), h.a.data(), a.size() * 8);
            if (s.results[step % 4].done != (uint64_t)step + 1) {
                printf("result not done\n");
                bad++;
            }
        }
    }
    printf("%s %llu x %llu%s\n", bad ? "DIFFERS" : "same", (unsigned long long)p.rows,
           (unsigned long long)p.d, p.icpt ? " + 1" : "");
    free_all(s);
    if (tiles) {
        free_all(f);
    }
    return bad != 0;
}

template <class F> static double time_ms(F body, int repeats)
{
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<float> all;
    for (int i = 0; i < 3; i++) {
        body();
    }
    for (int i = 0; i < repeats; i++) {
        CHECK(cudaEventRecord(a));
        body();
        CHECK(cudaEventRecord(b));
        CHECK(cudaEventSynchronize(b));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        all.push_back(ms);
    }
    CHECK(cudaGetLastError());
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

static void bench(problem p, int repeats)
{
    dense s;
    start(s, p, nullptr, nullptr, true);
    double bytes = (double)p.rows * p.d * 4;
    double f = time_ms([&] { launch_forward(s, 0); }, repeats);
    printf("%llu x %llu: forward %.4f ms %.2f TB/s;", (unsigned long long)p.rows,
           (unsigned long long)p.d, f, bytes / f * 1e-9);
    for (uint64_t per : {16, 32, 64, 128}) {
        double b = time_ms([&] { launch_backward(s, 0, per); }, repeats);
        printf(" backward(%d) %.4f ms %.2f TB/s;", (int)per, b, bytes / b * 1e-9);
    }
    double u = time_ms([&] { launch_update(s, 0, false); }, repeats);
    double uf = time_ms([&] { launch_update(s, 0, true); }, repeats);
    double k = time_ms([&] { launch_fused(s, 0); }, repeats);
    printf(" update %.4f, of units %.4f; fused %.4f ms %.2f TB/s\n", u, uf, k, bytes / k * 1e-9);
    cudaStream_t q;
    CHECK(cudaStreamCreate(&q));
    for (int fused = 0; fused < 2; fused++) {
        auto step = [&](cudaStream_t st) {
            if (fused) {
                launch_fused(s, st);
            } else {
                launch_forward(s, st);
                launch_backward(s, st, 64);
            }
            launch_update(s, st, fused);
        };
        int n = p.rows > 100000 ? 20 : 500;
        double plain = time_ms(
                           [&] {
                               for (int i = 0; i < n; i++)
                                   step(0);
                           },
                           5) /
                       n;
        cudaGraph_t g;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(q, cudaStreamCaptureModeThreadLocal));
        step(q);
        CHECK(cudaStreamEndCapture(q, &g));
        CHECK(cudaGraphInstantiate(&exec, g, 0));
        double graph = time_ms(
                           [&] {
                               for (int i = 0; i < n; i++)
                                   CHECK(cudaGraphLaunch(exec, 0));
                           },
                           5) /
                       n;
        printf("   whole step %s: launches %.4f ms, graph %.4f ms\n",
               fused ? "fused" : "two passes", plain, graph);
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(g));
    }
    free_all(s);
}

int main(int argc, char **argv)
{
    int bad = 0;
    if (argc > 1 && strcmp(argv[1], "big") == 0) {
        bench({1048576, 1024, false}, 20);
        return 0;
    }
    problem list[] = {
        {1, 1, false},       {1, 1, true},      {5, 3, true},       {127, 4, true},
        {129, 7, false},     {2048, 16, true},  {2049, 33, true},   {4096, 90, true},
        {5000, 128, true},   {5000, 127, true}, {3001, 200, true},  {4100, 256, true},
        {3000, 500, true},   {2500, 700, true}, {6200, 1023, true}, {2100, 1024, true},
        {2100, 1024, false}, {70000, 5, true},  {2300, 1500, true}};
    for (auto &p : list) {
        bad += check(p);
    }
    if (bad) {
        printf("%d shapes differ\n", bad);
        return 1;
    }
    bench({10000, 64, true}, 50);
    bench({515345, 90, true}, 50);
    bench({1048576, 1024, false}, 20);
    bench({1048576, 1024, true}, 20);
    return 0;
}
