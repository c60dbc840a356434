"""gloo_all_reduce.py RANKS BYTES...: time of torch.distributed's all_reduce over Gloo (float, sum, in place, as it offers it), measured
as mpi_all_reduce.c does. Prints "BYTES MICROSECONDS" lines."""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

ROUNDS, ROUND_S = 3, 0.02


def round_of(data, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    seconds = torch.tensor([(time.perf_counter() - start) / calls], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def run(rank, ranks, port, sizes):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size in sizes:
        data = torch.zeros(size // 4)
        once = round_of(data, 3)
        calls = max(2, min(20000, int(ROUND_S / once)))
        rounds = sorted(round_of(data, calls) for _ in range(ROUNDS))
        if rank == 0:
            print(size, f"{rounds[ROUNDS // 2] * 1e6:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        free = door.getsockname()[1]
    count = int(sys.argv[1])
    multiprocessing.spawn(run, (count, free, [int(s) for s in sys.argv[2:]]), nprocs=count)
