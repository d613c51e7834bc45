// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The program that the texts here are recordings of.
#include <sys/prctl.h>
#include <fcntl.h>
#include <unistd.h>
#include <time.h>
#include <map>
#include <functional>
namespace ring {
template <typename Key, int Width> struct Table {
    volatile unsigned long sum = 0;
    __attribute__((noinline)) unsigned long mix(Key a, unsigned long b) { for (int i = 0; i < Width; i++) sum += a * b + i; return sum; }
    __attribute__((noinline)) unsigned long operator()(Key a, unsigned long b) { return mix(a, b) + 1; }
};
}
static double now() { timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec / 1e9; }
__attribute__((noinline)) static unsigned long spin(const std::function<unsigned long(int)> &f) { unsigned long n = 0; for (int i = 0; i < 500; i++) n += f(i); return n; }
__attribute__((noinline)) static void copy(int from, int to) { char b[4096]; for (int i = 0; i < 60; i++) { if (read(from, b, sizeof b) > 0 && write(to, b, sizeof b) < 0) _exit(1); } }
int main(int n_args, char **) {
    prctl(PR_SET_NAME, "demo [a], b 7");
    int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);
    ring::Table<unsigned long, 200> table; volatile unsigned long n = 0;
    for (double end = now() + (n_args > 1 ? 4 : 0.3); now() < end;) { n = n + spin([&](int i) { return table(i, 3); }); copy(from, to); }
}
