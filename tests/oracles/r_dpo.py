"""Golden numbers of R-DPO, in plain Python and float64: python3 tests/oracles/r_dpo.py > fixtures/r-dpo.json"""
import json
import math
import random


def log_sigmoid(z):
    return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


def loss_case(name, rng, beta, alpha, lengths, scale=3.0):
    width = max(max(pair) for pair in lengths)
    inputs, sums = {}, {}
    for side, column in (("chosen", 0), ("rejected", 1)):
        mask = [[1 if t < pair[column] else 0 for t in range(width)] for pair in lengths]
        for model in ("policy", "reference"):  # masked places hold what must not be read
            rows = [[-scale * rng.random() if kept else -7.75 for kept in row] for row in mask]
            inputs[f"{model}_{side}_logps"] = rows
            sums[model, side] = [sum(x for x, kept in zip(row, keep) if kept) for row, keep in zip(rows, mask)]
        inputs[f"{side}_mask"] = mask
    pairs = range(len(lengths))
    rewards = {side: [beta * (sums["policy", side][i] - sums["reference", side][i]) for i in pairs] for side in ("chosen", "rejected")}
    logits = [rewards["chosen"][i] - rewards["rejected"][i] + alpha * (lengths[i][0] - lengths[i][1]) for i in pairs]
    losses = [-log_sigmoid(z) for z in logits]
    gradient = [-beta * math.exp(log_sigmoid(-z)) / len(lengths) for z in logits]  # in each chosen token; rejected ones: the opposite
    expected = {
        "loss": sum(losses) / len(losses), "losses": losses, "logits": logits,
        "chosen_rewards": rewards["chosen"], "rejected_rewards": rewards["rejected"],
        "grad_policy_chosen_logps": [[g * kept for kept in row] for g, row in zip(gradient, inputs["chosen_mask"])],
        "grad_policy_rejected_logps": [[-g * kept for kept in row] for g, row in zip(gradient, inputs["rejected_mask"])],
    }
    return {"name": name, "op": "loss", "options": {"beta": beta, "alpha": alpha}, "inputs": {k: tensor(v) for k, v in inputs.items()},
            "expected": {k: tensor(v) for k, v in expected.items()}, "tolerance": 1e-9}


def tensor(value):
    if not isinstance(value, list):
        return value
    matrix = isinstance(value[0], list)
    return {"shape": [len(value), len(value[0])] if matrix else [len(value)], "data": [x for row in value for x in row] if matrix else value}


rng = random.Random(2403)
cases = [
    loss_case("ragged", rng, 0.1, 0.01, [(5, 3), (2, 5), (4, 4)]),
    loss_case("alpha 0 is DPO", rng, 0.1, 0.0, [(5, 3), (2, 5)]),
    loss_case("a high price", rng, 0.5, 2.0, [(6, 1), (1, 6), (3, 3)]),
    loss_case("an empty response", rng, 0.1, 0.05, [(4, 0), (0, 4)]),
    loss_case("extreme margins", rng, 5.0, 0.01, [(6, 2), (2, 6)], scale=300),
]
print(json.dumps({"method": "r-dpo", "seed": 2403, "source": "tests/oracles/r_dpo.py: the paper's formula in plain Python", "cases": cases}, indent=1))
