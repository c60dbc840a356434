/* X(name, value, meaning, source): the calibrated numbers of expert traffic. Part of consts_list.h. */
X(dispatch_plain, 0.98, "share of the network's rate that a large plain all-to-all reaches, less the decay",
  "catalog: all_to_all on p6-b300 and p5")
X(dispatch_decay, 0.05, "loss per doubling of NVLink domains",
  "catalog: 180 to 74 GB/s bus bandwidth from 16 to 256 ranks on p6-b300")
X(dispatch_plain_us, 190, "microseconds of a plain all-to-all across machines, in addition to its bytes",
  "catalog: all_to_all at 56 MiB compared with its peak")
X(dispatch_two_level, 0.70,
  "share of the network's rate where a token crosses once per domain and is copied inside it, over EFA",
  "catalog: EP dispatch/combine on p6-b300, p5, p5en, p6-b200")
X(dispatch_two_level_nic, 0.88, "the same where GPUs post the sends themselves (InfiniBand, RoCE)",
  "catalog: DeepEP over ConnectX-7 at 32 and 64 ranks, 43 to 45 of 50 GB/s; pplx's table of it: 43 to 53")
X(dispatch_two_level_us, 150, "microseconds of it, in addition to its bytes", "the same at 16 ranks")
X(dispatch_sms, 20,
  "multiprocessors that forward expert traffic while a pass of the other direction computes (DualPipe)",
  "arXiv 2412.19437, section 3.2.2; the default of DeepEP")
X(dispatch_nvlink, 0.60, "share of NVLink's one-way rate of expert traffic inside a domain",
  "catalog: 320 of 450 GB/s on H200, 280 to 426 of 900 on B200, 153 of 200 on H800")
X(dispatch_nvlink_us, 40, "microseconds of it, in addition to its bytes", "EP8 decode tables of the catalog: 43 to 50")
X(dispatch_efa, 0.32, "share of those rates that remains inside a step over EFA, whose sends a host thread posts",
  "aws-awsome-distributed-ai: 25 to 28 of 100 GB/s in steps on p6-b300, 74 to 105 alone")
X(dispatch_message_us, 0.4, "microseconds in which that thread posts one token to one domain (two-level dispatch)",
  "the same: 0.4 on p6-b300, whatever the width")
X(dispatch_message_v2_us, 1.5, "the same over EFA v2", "the same: 1.0 (NVSHMEM) to 2.2 (UCCL) on p5")
