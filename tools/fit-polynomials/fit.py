"""Fits the f32 polynomials of hanzo-quant's math.rs and prints them as Rust constants.

Each fit is a least-squares polynomial at Chebyshev nodes in extended precision, weighted so that the *relative* error of
the function is levelled. Coefficients are rounded to f32 one after the other, lowest degree first, the rest refitted each
time, so that rounding one is made good by its successors.

    pip install numpy mpmath && python fit.py
"""

import math

import mpmath as mp
import numpy as np

mp.mp.dps = 40
NODES = 600


def fit(name, f, lo, hi, degree, weight=lambda x: 1, fixed=()):
    """f(x) ~ sum c[k] x^k on [lo, hi]; `fixed` gives the first coefficients."""
    xs = [mp.mpf(lo + hi) / 2 + mp.mpf(hi - lo) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / NODES) for k in range(NODES)]
    ys = [f(x) for x in xs]
    ws = [weight(x) for x in xs]
    coeffs = [mp.mpf(c) for c in fixed]
    while len(coeffs) <= degree:
        k0 = len(coeffs)
        a = np.array([[float(w * x**k) for k in range(k0, degree + 1)] for x, w in zip(xs, ws)], dtype=np.longdouble)
        b = np.array([float(w * (y - sum(c * x**k for k, c in enumerate(coeffs)))) for x, y, w in zip(xs, ys, ws)])
        rest = np.linalg.lstsq(a.astype(float), b.astype(float), rcond=None)[0]
        coeffs.append(mp.mpf(float(np.float32(rest[0]))))
    worst = max(abs(w * (y - sum(c * x**k for k, c in enumerate(coeffs)))) for x, y, w in zip(xs, ys, ws))
    print(f"/// Relative error of the polynomial 2^{math.log2(float(worst)):.1f}.")
    print(f"pub const {name}: [f32; {degree + 1}] = [")
    for c in coeffs:
        c = float(c)
        print(f"    {np.format_float_scientific(np.float32(c), unique=True)},")
    print("];")


# exp(r) for |r| <= ln 2 / 2 (a little more, for the rounding of the reduction).
H = mp.log(2) / 2 * mp.mpf("1.001")
fit("EXP", mp.exp, -H, H, 6, lambda x: mp.exp(-x), fixed=(1, 1))
# 2^r for |r| <= 1/2.
fit("EXP2", lambda x: mp.power(2, x), -0.5, 0.5, 6, lambda x: mp.power(2, -x), fixed=(1,))
# tanh(x) = x + x·z·P(z), z = x², for |x| <= 0.625.
T = mp.mpf("0.625") ** 2


def tanh_p(z):
    if z < mp.mpf("1e-12"):
        return -mp.mpf(1) / 3 + 2 * z / 15
    x = mp.sqrt(z)
    return (mp.tanh(x) / x - 1) / z


fit("TANH", tanh_p, 0, T, 4, lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)) if z else 1)

# erf(x) = x + x·P(z), z = x², for |x| <= 0.9.
E = mp.mpf("0.9") ** 2
fit("ERF", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, mp.mpf("1e-20"), E, 6, lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)))
# erf(x) = 1 − exp(x·Q(x)) for 0.9 <= x <= 4: the error of erf is erfc(x)·|x|·|error of Q|.
fit("ERFC_LOG", lambda x: mp.log(mp.erfc(x)) / x, mp.mpf("0.9"), mp.mpf("4"), 7, lambda x: mp.erfc(x) * x / mp.erf(x))
