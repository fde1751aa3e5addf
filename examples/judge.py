#!/usr/bin/env python3
"""A reward of one's own for --reward "program:python3 judge.py": a JSON object a line in, one out, in the same order."""

import json
import sys

for line in sys.stdin:
    asked = json.loads(line)
    words = asked["response"].split()
    print(json.dumps({"reward": -abs(len(words) - 20)}), flush=True)  # about twenty words are wanted
