"""Writes scipy.json: what scipy and numpy say of random samples, for tests/statistics.rs to agree with.

    pip install numpy==2.4.6 scipy==1.17.1
    python3 generate.py > scipy.json
"""

import json

import numpy as np
from scipy import stats

rng = np.random.default_rng(20261130)

quantiles = [
    {"p": p, "df": df, "t": float(stats.t.ppf(p, df))}
    for df in [1, 2, 3, 4, 6, 7.5, 9.99, 12, 30, 100.25, 1e4]
    for p in [0.6, 0.9, 0.95, 0.975, 0.995, 0.9999]
]
tails = [
    {"t": float(t), "df": df, "tail": float(stats.t.sf(t, df))}
    for df in [1, 2, 5.5, 12, 200]
    for t in [0.0, 0.1, 1.0, 2.5, 8.0, 40.0]
]

means = []
for _ in range(40):
    n = int(rng.integers(2, 16))
    x = rng.normal(rng.uniform(1, 500), rng.uniform(0.01, 20), n)
    low, high = stats.t.interval(0.95, n - 1, loc=np.mean(x), scale=stats.sem(x))
    means.append(
        {
            "x": x.tolist(),
            "mean": float(np.mean(x)),
            "sd": float(np.std(x, ddof=1)),
            "half_width": float((high - low) / 2),
            "cv": float(stats.variation(x, ddof=1)),
            "p95": float(np.percentile(x, 95)),
        }
    )

# The delta method on the logarithm's first order: relative variances add. Welch's test of the two scaled samples a/mean(a) and
# b/mean(b) has the same sum of variances and the same degrees of freedom, so scipy gives both.
ratios = []
for _ in range(40):
    a = rng.normal(rng.uniform(50, 500), rng.uniform(0.1, 8), int(rng.integers(2, 10)))
    b = rng.normal(rng.uniform(50, 500), rng.uniform(0.1, 8), int(rng.integers(2, 10)))
    welch = stats.ttest_ind(a / a.mean(), b / b.mean(), equal_var=False)
    interval = welch.confidence_interval(0.95)
    half = (interval.high - interval.low) / 2
    ratio = a.mean() / b.mean()
    ratios.append(
        {
            "a": a.tolist(),
            "b": b.tolist(),
            "ratio": float(ratio),
            "low": float(ratio * (1 - half)),
            "high": float(ratio * (1 + half)),
        }
    )

lines = []
for _ in range(10):
    x = np.sort(rng.uniform(1, 4096, int(rng.integers(2, 8))))
    y = 0.003 + 1e-5 * x + rng.normal(0, 1e-4, len(x))
    fit = stats.linregress(x, y)
    lines.append({"x": x.tolist(), "y": y.tolist(), "intercept": float(fit.intercept), "slope": float(fit.slope)})

print(json.dumps({"quantiles": quantiles, "tails": tails, "means": means, "ratios": ratios, "lines": lines}))
