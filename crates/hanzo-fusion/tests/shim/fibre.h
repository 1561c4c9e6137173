// Runs the text of a GPU kernel on one CPU thread: each invocation of a workgroup is a fibre with its own stack, which gives way to the
// others where invocations wait for each other (barriers, subgroup operations).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace hzs {
constexpr size_t STACK = 64 << 10;
struct Dim { unsigned x = 1, y = 1, z = 1; };
struct Fibre {
    void* sp = nullptr;       // where it stopped
    bool done = true;
    unsigned barriers = 0;    // met so far, with the workgroup
    unsigned meetings = 0;    // with the subgroup
};
inline std::vector<Fibre> fibres;
inline std::vector<char> stacks;
inline void* scheduler;
inline unsigned self;
inline Dim group, grid, size;
inline void (*entry)();
inline uint64_t exchange[1024];

extern "C" void hzs_switch(void** from, void* to);
// Saves what the System V calling convention asks a callee to save, and changes stacks.
asm(R"(
.text
.globl hzs_switch
.type hzs_switch, @function
hzs_switch:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
)");

inline void give_way() { hzs_switch(&fibres[self].sp, scheduler); }
inline void start() {
    entry();
    fibres[self].done = true;
    give_way();
    abort();
}

// Waits until all of [first, last) have met as often. One that has returned meets nobody: that is a fault of the kernel.
inline void meet(unsigned first, unsigned last, unsigned Fibre::*count) {
    unsigned mine = ++(fibres[self].*count);
    for (;;) {
        bool all = true;
        for (unsigned i = first; i < last; i++) {
            if (fibres[i].*count >= mine) continue;
            if (fibres[i].done) { fprintf(stderr, "invocation %u waits for %u, which has returned\n", self, i); exit(3); }
            all = false;
        }
        if (all) return;
        give_way();
    }
}
inline void barrier() { meet(0, unsigned(fibres.size()), &Fibre::barriers); }
inline unsigned lane() { return self % HZ_SUBGROUP; }
inline unsigned base() { return self - lane(); }
inline void subgroup_meet() { meet(base(), base() + HZ_SUBGROUP, &Fibre::meetings); }

template <class T> T shuffle(T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "one word");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    exchange[self] = word;
    subgroup_meet();
    T out;
    memcpy(&out, &exchange[base() + from % HZ_SUBGROUP], sizeof out);
    subgroup_meet();
    return out;
}
inline uint64_t ballot(bool value) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < HZ_SUBGROUP; i++) bits |= uint64_t(shuffle(value, i)) << i;
    return bits;
}

// A conversion that every target has in hardware, bit by bit.
inline float half_to_float(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float value = exponent == 31 ? (mantissa ? NAN : INFINITY) : exponent ? std::ldexp(float(mantissa + 1024), exponent - 25) : std::ldexp(float(mantissa), -24);
    return h >> 15 ? -value : value;
}
inline uint16_t float_to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    float a = std::fabs(f);
    if (std::isnan(f)) return uint16_t(sign | 0x7e00);
    if (a >= 65520.0f) return uint16_t(sign | 0x7c00);
    // frexp has no exponent for zero.
    int e = -14;
    if (a > 0) std::frexp(a, &e);
    int scale = e < -13 ? 24 : 11 - e;    // subnormal halves are multiples of 2^-24
    float units = std::nearbyint(std::ldexp(a, scale));
    return uint16_t(sign | (e < -13 ? int(units) : int(units) + ((e + 13) << 10)));
}
inline int dot4(uint32_t a, uint32_t b, int c, bool a_signed) {
    for (int i = 0; i < 4; i++) {
        uint8_t x = uint8_t(a >> 8 * i);
        c += (a_signed ? int(int8_t(x)) : int(x)) * int(int8_t(b >> 8 * i));
    }
    return c;
}

// What the lanes of a subgroup show each other for a product of matrix fragments.
inline uint32_t shown[1024][16];
template <class T> void show(const T* words, unsigned n, unsigned at = 0) { memcpy(&shown[self][at], words, n * sizeof(uint32_t)); }
inline float shown_half(unsigned lane, unsigned word, unsigned k) { return half_to_float(uint16_t(shown[base() + lane][word] >> 16 * k)); }
inline int shown_byte(unsigned lane, unsigned word, unsigned k) { return int8_t(shown[base() + lane][word] >> 8 * k); }

inline void launch(Dim g, unsigned workgroup, void (*kernel)()) {
    grid = g;
    size = Dim{workgroup, 1, 1};
    entry = kernel;
    fibres.assign(workgroup, Fibre());
    stacks.resize(workgroup * STACK);
    for (group.z = 0; group.z < g.z; group.z++)
        for (group.y = 0; group.y < g.y; group.y++)
            for (group.x = 0; group.x < g.x; group.x++) {
                for (unsigned i = 0; i < workgroup; i++) {
                    uintptr_t top = uintptr_t(stacks.data() + (i + 1) * STACK) & ~uintptr_t(15);
                    void** sp = (void**)top;
                    *--sp = nullptr;
                    *--sp = (void*)start;
                    for (int r = 0; r < 6; r++) *--sp = nullptr;
                    fibres[i] = Fibre{sp, false, 0, 0};
                }
                for (bool left = true; left;) {
                    left = false;
                    for (self = 0; self < workgroup; self++) {
                        if (fibres[self].done) continue;
                        hzs_switch(&scheduler, fibres[self].sp);
                        left |= !fibres[self].done;
                    }
                }
            }
}
}  // namespace hzs
