/* diagnose_list - the rules of `ashlar plan diagnose`, in the order of the layers:
 *   RULE(layer, kind, severity, metric, per, only, busy, limit, floor, normal, means, action, source)
 * The fields are those of struct ash_rule. Sources: DCGM is NVIDIA's field list, EFA the driver's hardware counters,
 * node node_exporter's collectors, AWS the health checks that AWS publishes for its GPU clusters, Ashlar docs/. */

/* ---- GPU --------------------------------------------------------------------------------------------------------- */
RULE(GPU, COUNT, BROKEN, "DCGM_FI_DEV_GPU_TEMP", NULL, NULL, false, 0, 0, "as many GPUs as the other nodes",
     "a GPU fell off the bus, or its exporter lost it", "reboot the node; if it stays away, replace it",
     "AWS: a wrong number of GPUs is rebooted")
RULE(GPU, XID, BROKEN, "DCGM_FI_DEV_XID_ERRORS", NULL, NULL, false, 0, 0, "0, or a code that is only watched",
     "the driver reported an error of this GPU that no source lists", "drain the node and ask support",
     "DCGM field 230; ashlar plan xid CODE says more")
RULE(GPU, MAX, BROKEN, "DCGM_FI_DEV_ROW_REMAP_FAILURE", NULL, NULL, false, 0, 0, "0",
     "no spare rows are left for broken memory", "replace the GPU", "DCGM field 395")
RULE(GPU, MAX, BROKEN, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", NULL, NULL, false, 0, 0, "0 since the driver was loaded",
     "memory errors that could not be corrected: results may have been lost",
     "reset the GPU; replace it if they return", "DCGM field 311; AWS's alert")
RULE(GPU, GROWTH, BROKEN, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", NULL, NULL, false, 0, 0, "does not grow",
     "rows of memory were given up after errors that could not be corrected",
     "reset the GPU so that the remap takes hold", "DCGM field 393")
RULE(GPU, GROWTH, WATCH, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", NULL, NULL, false, 0, 0, "does not grow",
     "rows of memory were given up in time", "none; watch how often", "DCGM field 394")
RULE(GPU, GROWTH, SLOW, "DCGM_FI_DEV_THERMAL_VIOLATION", NULL, NULL, false, 0, 0, "does not grow",
     "the GPU clocks down because it is hot", "look at cooling and neighbours", "DCGM field 241; AWS's dashboard")
RULE(GPU, RATE_HIGH, SLOW, "DCGM_FI_DEV_POWER_VIOLATION", NULL, NULL, false, 0.5, 50000,
     "as its peers: full load meets the cap", "the GPU clocks down for power more than its peers",
     "compare its power limit and supply with its peers'", "DCGM field 240")
RULE(GPU, PEER_LOW, SLOW, "DCGM_FI_DEV_SM_CLOCK", NULL, NULL, true, 0.10, 50, "within 10 % of its working peers",
     "a slow GPU: every step waits for it", "look at power, heat and clock limits (nvidia-smi -q -d CLOCK,PERFORMANCE)",
     "DCGM field 100")
RULE(GPU, PEER_LOW, SLOW, "DCGM_FI_DEV_MEM_CLOCK", NULL, NULL, true, 0.05, 50, "within 5 % of its working peers",
     "slow memory: every step waits for it", "reset the GPU; compare its clock limits", "DCGM field 101")
RULE(GPU, PEER_HIGH, WATCH, "DCGM_FI_DEV_GPU_TEMP", NULL, NULL, true, 0.2, 10, "within 20 % of its working peers",
     "hotter than the others; it will clock down first", "look at cooling", "DCGM field 150")
RULE(GPU, PEER_LOW, WATCH, "DCGM_FI_DEV_POWER_USAGE", NULL, NULL, true, 0.3, 50, "within 30 % of its working peers",
     "it works less than the others: it waits, or it is held back", "see its clocks and its node", "DCGM field 155")
RULE(GPU, RATE_HIGH, SLOW, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", NULL, NULL, false, 1, 100, "as its peers, near 0",
     "a bad PCIe link: copies to the host and to the network card are slow",
     "reseat or replace; check link width and speed", "DCGM field 202")

/* ---- NVLink ------------------------------------------------------------------------------------------------------ */
RULE(NVLINK, GROWTH, BROKEN, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", NULL, NULL, false, 0, 0, "does not grow",
     "a link went down and was trained again", "reset the GPU; replace it if it returns", "DCGM field 439")
RULE(NVLINK, GROWTH, SLOW, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", NULL, NULL, false, 0, 0, "does not grow",
     "packets were sent again over a bad link", "run dcgmi diag -r 3 on the node", "DCGM field 429")
RULE(NVLINK, GROWTH, SLOW, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", NULL, NULL, false, 0, 0, "does not grow",
     "a bad link damages data, which is sent again", "run dcgmi diag -r 3 on the node", "DCGM field 419")
RULE(NVLINK, GROWTH, SLOW, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", NULL, NULL, false, 100, 0,
     "grows by less than 100", "a link with many damaged flits", "run dcgmi diag -r 3 on the node", "DCGM field 409")
RULE(NVLINK, RATE_LOW, SLOW, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", NULL, NULL, true, 0.5, 0,
     "at least half of its peers'", "this GPU moves far less over NVLink than its peers",
     "look for a link that is down (nvidia-smi nvlink -s)", "DCGM field 449")

/* ---- network ----------------------------------------------------------------------------------------------------- */
RULE(NETWORK, COUNT, BROKEN, "node_amazonefa_rx_bytes", NULL, NULL, false, 0, 0, "as many devices as the other nodes",
     "an EFA device is missing", "reboot the node; check the instance's network interfaces",
     "AWS: EFA is checked on every card")
RULE(NETWORK, GROWTH, BROKEN, "node_amazonefa_unresponsive_remote_events", NULL, NULL, false, 0, 0, "does not grow",
     "a peer did not answer: a node is gone or hangs", "find the peer: the node whose own counters stand still", "EFA")
RULE(NETWORK, GROWTH, SLOW, "node_amazonefa_impaired_remote_conn_events", NULL, NULL, false, 0, 0, "does not grow",
     "connections to a peer are bad", "find the peer; try the job without it", "EFA")
RULE(NETWORK, GROWTH, SLOW, "node_amazonefa_retrans_timeout_events", NULL, NULL, false, 0, 0, "does not grow",
     "packets were lost so long that a timer ran out", "look at the switch or the node at the other end",
     "AWS warns on it")
RULE(NETWORK, GROWTH, SLOW, "node_amazonefa_rx_drops", NULL, NULL, false, 0, 0, "does not grow",
     "the node throws packets away: it cannot keep up", "look at the host's load and at receive buffers",
     "AWS warns on it")
RULE(NETWORK, GROWTH, BROKEN, "node_amazonefa_rdma_read_wr_err", NULL, NULL, false, 0, 0, "does not grow",
     "RDMA reads failed", "look at the job's log for the peer", "EFA")
RULE(NETWORK, GROWTH, BROKEN, "node_amazonefa_rdma_write_wr_err", NULL, NULL, false, 0, 0, "does not grow",
     "RDMA writes failed", "look at the job's log for the peer", "EFA")
RULE(NETWORK, RATE_HIGH, SLOW, "node_amazonefa_retrans_bytes", NULL, NULL, false, 1, 1e6, "at most twice its peers'",
     "this device sends far more again than its peers", "look at the cable, the switch or the peers of this device",
     "EFA")
RULE(NETWORK, RATE_LOW, SLOW, "node_amazonefa_tx_bytes", NULL, NULL, true, 0.5, 0,
     "at least half of its working peers'", "this device sends far less than its peers",
     "see whether the job uses every device (NCCL log), then the device", "EFA")
RULE(NETWORK, RATE_LOW, SLOW, "node_amazonefa_rx_bytes", NULL, NULL, true, 0.5, 0,
     "at least half of its working peers'", "this device receives far less than its peers",
     "see whether the job uses every device (NCCL log), then the device", "EFA")
RULE(NETWORK, GROWTH, SLOW, "node_netstat_TcpExt_TCPTimeouts", NULL, NULL, false, 100, 0, "grows by less than 100",
     "TCP connections time out", "look at the host's network", "node: netstat")

/* ---- storage ----------------------------------------------------------------------------------------------------- */
RULE(STORAGE, SHARE, SLOW, "node_pressure_io_stalled_seconds_total", NULL, NULL, false, 0.1, 0,
     "below 10 % of the time", "everything on the node waits for storage",
     "see which mount is slow; check the file system's throughput", "node: pressure")
RULE(STORAGE, MIN, BROKEN, "node_filesystem_avail_bytes", "node_filesystem_size_bytes",
     "fstype=ext4|xfs|btrfs|lustre|nfs|nfs4", false, 0.05, 0, "at least 5 % free",
     "a file system is nearly full: checkpoints will fail", "make room", "node: filesystem")
RULE(STORAGE, MAX, BROKEN, "node_filesystem_device_error", NULL, "fstype=ext4|xfs|btrfs|lustre|nfs|nfs4", false, 0, 0,
     "0", "a file system does not answer", "mount it again; check the server", "node: filesystem")
RULE(STORAGE, GROWTH, BROKEN, "ashlar_train_save_errors_total", NULL, NULL, false, 0, 0, "does not grow",
     "checkpoints could not be written", "see the run's log for the cause", "Ashlar")
RULE(STORAGE, PEER_HIGH, SLOW, "ashlar_train_save_seconds_sum", "ashlar_train_save_seconds_count", NULL, false, 0.5, 1,
     "within 50 % of its peers", "checkpoints take this node longer than others", "look at its mount and its network",
     "Ashlar")

/* ---- host -------------------------------------------------------------------------------------------------------- */
RULE(HOST, GROWTH, SLOW, "node_cpu_package_throttles_total", NULL, NULL, false, 0, 0, "does not grow",
     "the processor clocks down because it is hot: launches and the data loader are slow", "look at cooling",
     "node: cpu")
RULE(HOST, PEER_LOW, SLOW, "node_cpu_scaling_frequency_hertz", NULL, NULL, true, 0.4, 5e8, "within 40 % of its peers",
     "cores far below their peers' clock", "look at the governor and at power limits", "node: cpufreq")
RULE(HOST, MIN, SLOW, "node_memory_MemAvailable_bytes", "node_memory_MemTotal_bytes", NULL, false, 0.03, 0,
     "at least 3 % available", "host memory is nearly used up: the next to come is the OOM killer",
     "fewer loader workers, smaller caches", "node: meminfo")
RULE(HOST, GROWTH, BROKEN, "node_vmstat_oom_kill", NULL, NULL, false, 0, 0, "does not grow",
     "the kernel killed processes for lack of memory", "see dmesg for which", "node: vmstat")
RULE(HOST, SHARE, SLOW, "node_pressure_memory_stalled_seconds_total", NULL, NULL, false, 0.05, 0,
     "below 5 % of the time", "everything on the node waits for memory", "fewer loader workers, smaller caches",
     "node: pressure")
RULE(HOST, SHARE, SLOW, "node_pressure_cpu_waiting_seconds_total", NULL, NULL, false, 0.5, 0, "below 50 % of the time",
     "processes wait for a core: launches and the data loader are late",
     "stop what else runs there; pin ranks to cores", "node: pressure")
RULE(HOST, PEER_HIGH, WATCH, "node_load1", NULL, NULL, false, 1, 16, "at most twice its peers'",
     "this node does something that the others do not", "see what runs there", "node: loadavg")
RULE(HOST, GROWTH, BROKEN, "node_edac_uncorrectable_errors_total", NULL, NULL, false, 0, 0, "does not grow",
     "host memory had errors that could not be corrected", "replace the node", "node: edac")

/* ---- data loader and stragglers ---------------------------------------------------------------------------------- */
RULE(STEP, MIN, SLOW, "DCGM_FI_DEV_GPU_UTIL", NULL, NULL, false, 50, 0, "at least 50 % while a job runs",
     "GPUs wait for their host: data loader, or launches (waiting for other ranks would show as work)",
     "more loader workers, data nearer; profile one rank", "DCGM field 203")
RULE(STEP, PEER_LOW, SLOW, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", NULL, NULL, true, 0.3, 0.02,
     "within 30 % of its working peers", "this rank computes less than the others in the same time",
     "compare its share of the work, then its node", "DCGM field 1004")
RULE(STEP, PEER_HIGH, SLOW, "ashlar_train_step_seconds_sum", "ashlar_train_step_seconds_count", NULL, false, 0.1, 0.001,
     "within 10 % of its peers", "a straggler: its steps take longer", "see this node's other findings; move the rank",
     "Ashlar")
RULE(STEP, PEER_LOW, BROKEN, "ashlar_train_step", NULL, NULL, false, 0, 2, "within two steps of its peers",
     "a rank stands still or is not in the same run", "see its log", "Ashlar")
RULE(STEP, GROWTH, WATCH, "ashlar_train_skipped_steps_total", NULL, NULL, false, 0, 0, "does not grow",
     "steps with bad gradients were left out", "see the run's log; a GPU with memory errors can be the cause", "Ashlar")
