#!/usr/bin/env python3
"""Compares the boosting of stumps with scikit-learn's on the same synthetic data.

    cargo run --release -p amp-models --example crosscheck | python3 models/tools/crosscheck.py

Needs numpy and scikit-learn; nothing of the project does. Ends with status 1 when they differ.
"""

import json
import sys

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

ours = json.load(sys.stdin)
x, y = np.array(ours["train"]["x"]).T, np.array(ours["train"]["y"])
x_test, y_test = np.array(ours["test"]["x"]).T, np.array(ours["test"]["y"])


def theirs(subsample, seed):
    model = GradientBoostingRegressor(
        loss="squared_error", max_depth=1, n_estimators=ours["rounds"],
        learning_rate=ours["shrinkage"], min_samples_leaf=ours["min_leaf"], subsample=subsample, random_state=seed,
    )
    return model.fit(x, y)


def mse(a, b):
    return float(np.mean((np.array(a) - np.array(b)) ** 2))


# Without subsampling nothing is random: the same curve and the same predictions, but for rounding.
model = theirs(1.0, 0)
curve = np.array(ours["whole"]["training"])
print(f"training curve, {ours['rounds']} rounds: {curve[0]:.5f} to {curve[-1]:.6f}, theirs to {model.train_score_[-1]:.6f}")
curve_difference = float(np.max(np.abs(curve[1:] / model.train_score_ - 1)))
prediction_difference = float(np.max(np.abs(np.array(ours["whole"]["predictions"]) - model.predict(x_test))))
print(f"largest relative difference of the training curves: {curve_difference:.2e}")
print(f"largest difference of {len(y_test)} predictions of unseen windows: {prediction_difference:.2e}")

# With it, the draws differ: the errors must have the same mean, within their scatter.
seeds = range(len(ours["drawn"]))
a = np.array([mse(d["predictions"], y_test) for d in ours["drawn"]])
b = np.array([mse(theirs(0.5, s).predict(x_test), y_test) for s in seeds])
u = float(np.hypot(a.std(ddof=1), b.std(ddof=1)) / np.sqrt(len(a)))
z = float((a.mean() - b.mean()) / u)
print(f"half of the windows per round, {len(a)} seeds: MSE on unseen windows {a.mean():.6f}, theirs {b.mean():.6f}, "
      f"difference {z:+.2f} standard uncertainties")

sys.exit(curve_difference > 1e-9 or prediction_difference > 1e-6 or abs(z) > 3)
