"""torch_save.py FILE save BYTES: writes a state of BYTES bytes (parameters and two moments of AdamW, in matrices of a
transformer's size) with torch.save and flushes it; torch_save.py FILE load: reads it back. Prints bytes per second."""
import os
import sys
import time

import torch

path, action = sys.argv[1], sys.argv[2]
if action == "save":
    count = int(sys.argv[3]) // (3 * 4 * 768 * 3072)
    state = {f"{kind}.{i}": torch.randn(768, 3072) for i in range(count) for kind in ("param", "exp_avg", "exp_avg_sq")}
    began = time.time()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
else:
    began = time.time()
    state = torch.load(path)
print(sum(t.numel() for t in state.values()) * 4 / (time.time() - began))
