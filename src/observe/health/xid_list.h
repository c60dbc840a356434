/* Included by xid.c alone, twice.
 * BUCKET(id, verdict, job, why, next): the first action of NVIDIA's catalog, under its own name.
 * X(first, last, bucket, strict verdict or 0, in memory?, meaning, next or NULL for the bucket's, how sources differ or
 * NULL, source): the codes from first to last. */
#ifdef BUCKET
BUCKET(IGNORE, MONITOR, GOES_ON, "NVIDIA asks for no action (IGNORE)",
       "keep it in service and count how often it comes")
BUCKET(IGNORE_APP, MONITOR, PROCESS, "NVIDIA asks for no action on the GPU (IGNORE); the program at fault has failed",
       "look for the program's own error, run it under compute-sanitizer, restart it")
BUCKET(RESTART_APP, MONITOR, PROCESS, "NVIDIA asks to restart the application (RESTART_APP); the GPU stays usable",
       "restart the job; if it comes again on this GPU with different jobs, drain it and run dcgmi diag -r 3")
BUCKET(WORKFLOW_XID_45, MONITOR, PROCESS, "it follows another error (WORKFLOW_XID_45)",
       "act on the XID before it; if it is the only one, restart the fabric manager and then the job")
BUCKET(RESET_GPU, RESET, GPU, "NVIDIA asks for a reset of the GPU (RESET_GPU)",
       "drain it, end its processes, nvidia-smi --gpu-reset, then dcgmi diag -r 2; replace it if the code comes back")
BUCKET(WORKFLOW_XID_48, RESET, GPU, "NVIDIA's workflow for it ends in a reset, after draining where 63 or 64 came too",
       "drain and reset it, which also puts recorded row remaps into effect; replace it if it comes back")
BUCKET(WORKFLOW_NVLINK_ERR, RESET, GPU, "a link that failed is trained again by a reset (WORKFLOW_NVLINK_ERR)",
       "drain, reset all GPUs that the link joins, look at nvidia-smi nvlink -e; replace if the same link fails again")
BUCKET(WORKFLOW_NVLINK5_ERR, MONITOR, GOES_ON,
       "some of its sub-codes ask for nothing, some for a reset: the numbers in the line decide (WORKFLOW_NVLINK5_ERR)",
       "look for an XID 154 near it, else decode the line with NVIDIA's table for 144-150; a fatal one needs a reset")
BUCKET(RESTART_BM, REBOOT, NODE, "only a restart of the machine brings it back (RESTART_BM)",
       "drain the node and reboot or power-cycle it; replace it if the code comes back after that")
BUCKET(RESTART_VM, REBOOT, NODE, "the virtual machine must be restarted (RESTART_VM)",
       "drain the node and restart the virtual machine")
BUCKET(BOOT_OR_ECC, REBOOT, NODE, "booting again or turning ECC on is the way out (BOOT_REATTEMPT_OR_ENABLE_ECC)",
       "drain and reboot; if it comes back, turn ECC on and reboot again, then replace it")
BUCKET(CHECK_MECHANICALS, ISOLATE, NODE, "hands must look at it (CHECK_MECHANICALS)",
       "take the node out of service; have power cables and seating checked, or replace the machine")
BUCKET(CHECK_UVM, MONITOR, GOES_ON, "it matters only where unified memory is in use (CHECK_UVM)",
       "find out whether processes use /dev/nvidia-uvm; if so, say --uvm")
BUCKET(CONTACT_SUPPORT, MONITOR, GOES_ON, "NVIDIA calls it unused or asks to contact support (CONTACT_SUPPORT)",
       "keep it in service; write the line down and ask support if it comes again")
BUCKET(UPDATE_SWFW, MONITOR, PROCESS, "software versions do not go together (UPDATE_SWFW)",
       "update driver and firmware to versions that belong together")
BUCKET(XID_154, MONITOR, GOES_ON, "it repeats what another XID needs: the text of the line says what (XID_154)",
       "read the action in the line: give the log with --log, or see GPU Recovery Action in nvidia-smi -q")
BUCKET(NONE_LISTED, MONITOR, GOES_ON, "NVIDIA lists no action for it", "keep it in service and watch it")
#else
X(8, 8, RESTART_APP, 0, false, "a channel of the GPU made no progress in time", NULL, NULL, CATALOG)
X(11, 11, RESTART_APP, 0, false, PUSH_BUFFER, NULL, NULL, CATALOG)
X(13, 13, RESTART_APP, 0, false,
  "a compute or graphics engine raised an exception, most often an index out of bounds in a kernel",
  "restart the job; run it under compute-sanitizer if it comes again; dcgmi diag -r 3 if only this GPU does it", NULL,
  BOTH)
X(25, 25, RESTART_APP, 0, false, PUSH_BUFFER, NULL, NULL, CATALOG)
X(31, 31, RESTART_APP, 0, false, "a kernel touched an address that is not mapped: nearly always a bug of the program",
  "restart the job; run it under compute-sanitizer if it comes again", NULL, BOTH)
X(32, 32, RESTART_APP, 0, false, PUSH_BUFFER, NULL, NULL, CATALOG)
X(37, 38, IGNORE, 0, false, "the firmware that schedules the engines reported an error", NULL, NULL, CATALOG)
X(39, 41, RESTART_APP, 0, false, COPY_ENGINE, NULL, NULL, CATALOG)
X(43, 43, IGNORE_APP, 0, false, "a channel was stopped after a fault in the program that owned it",
  "look at the XID or the program's error before it; restart that program", NULL, BOTH)
X(44, 44, IGNORE, 0, false, "an engine faulted while it switched between programs", NULL, NULL, CATALOG)
X(45, 45, WORKFLOW_XID_45, 0, false, "the driver removed a program's channels because of an earlier error", NULL, NULL,
  CATALOG)
X(46, 46, RESET_GPU, 0, false, "the GPU stopped answering the driver in time", NULL, NULL, CATALOG)
X(48, 48, WORKFLOW_XID_48, 0, true, "an error in memory that ECC found and could not correct (two bits)", NULL, NULL,
  MEMORY_BOTH)
X(54, 54, CHECK_MECHANICALS, 0, false, "the board's auxiliary power is not connected", NULL, NULL, BOTH)
X(60, 60, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(62, 62, RESET_GPU, 0, false, "the controller that manages the GPU's power halted", NULL, NULL, CATALOG)
X(63, 63, IGNORE, 0, true, "a bad memory row (or page) was recorded for replacement by a spare: a success",
  "let the job continue; reset the GPU between jobs, which puts the remap into effect",
  "a widely copied four-code rule calls 63 a failed remap; NVIDIA's documents say that it succeeded", MEMORY_BOTH)
X(64, 64, RESET_GPU, ISOLATE, true, "a bad memory row (or page) could not be recorded for replacement",
  "drain and reset it; look at Remapping Failure Occurred in nvidia-smi -q: if Yes, replace the GPU",
  "a widely copied four-code rule calls 64 'fallen off the bus', which is 79; AWS re:Post moves to other hardware at "
  "once, NVIDIA and AWS's health check reset first",
  REPOST)
X(66, 67, IGNORE, 0, false, "the driver made an access that the GPU refused", NULL, NULL, CATALOG)
X(68, 68, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(69, 69, RESTART_APP, 0, false, "a program sent an engine a command that it does not know", NULL, NULL, CATALOG)
X(70, 72, RESTART_APP, 0, false, COPY_ENGINE, NULL, NULL, CATALOG)
X(73, 73, CONTACT_SUPPORT, REBOOT, false, "an error of a video encoder that NVIDIA's catalog lists as unused", NULL,
  "HyperPod's agent reboots on 73 (its documented self-test uses it); NVIDIA's catalog says only: contact support",
  HYPERPOD)
X(74, 74, WORKFLOW_NVLINK_ERR, ISOLATE, false, "an NVLink connection failed", NULL,
  "HyperPod's agent replaces the machine on 74; AWS's health check resets by default", HYPERPOD_BOTH)
X(75, 77, RESTART_APP, 0, false, COPY_ENGINE, NULL, NULL, CATALOG)
X(78, 78, UPDATE_SWFW, 0, false, "a virtual GPU could not start", NULL, NULL, CATALOG)
X(79, 79, RESTART_BM, 0, false, "the GPU no longer answers on PCIe: it has fallen off the bus", NULL,
  "a widely copied four-code rule gives this meaning to 64", BOTH)
X(80, 80, RESTART_APP, 0, false, "commands reached the GPU with a wrong checksum", NULL, NULL, CATALOG)
X(81, 81, CONTACT_SUPPORT, 0, false, "an error of the VGA part, listed as unused", NULL, NULL, BOTH)
X(82, 84, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(85, 85, RESTART_APP, 0, false, COPY_ENGINE, NULL, NULL, CATALOG)
X(86, 86, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(88, 89, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(92, 92, IGNORE, 0, true, "many single-bit memory errors, all of them corrected",
  "keep it in service; watch for 48, 63, 64, 94 and 95", NULL, BOTH)
X(93, 93, IGNORE, 0, false, "the board's configuration memory was written more often than planned", NULL, NULL, CATALOG)
X(94, 94, RESTART_APP, 0, true, "an uncorrected memory error that stayed inside the program that met it",
  "restart that job; reset the GPU between jobs if 63 came with it", NULL, BOTH)
X(95, 95, RESET_GPU, 0, true, "an uncorrected memory error that may have reached other programs on the GPU", NULL, NULL,
  BOTH)
X(96, 105, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(106, 107, IGNORE, 0, false, "a test message of the management bus", NULL, NULL, CATALOG)
X(109, 109, RESET_GPU, 0, false, "switching from one program to the next took too long", NULL, NULL, BOTH)
X(110, 110, RESET_GPU, 0, false, "an access broke the GPU's security rules", NULL, NULL, BOTH)
X(119, 120, RESET_GPU, 0, false, "the GPU's system processor (GSP) did not answer the driver or failed",
  "drain and reset it; if several nodes show it, suspect the driver version first",
  "AWS re:Post turns GSP off in the driver instead, since a restart alone does not keep it away", REPOST)
X(121, 121, IGNORE, 0, false, "an error on the chip-to-chip link between CPU and GPU", NULL, NULL, BOTH)
X(125, 125, CONTACT_SUPPORT, 0, false, "an error of the board's configuration memory, listed as unused", NULL, NULL,
  BOTH)
X(126, 135, RESTART_APP, 0, false, COPY_ENGINE, NULL, NULL, CATALOG)
X(136, 136, RESET_GPU, 0, false, "an NVLink connection could not be trained", NULL, NULL, BOTH)
X(137, 137, IGNORE_APP, 0, false,
  "a program touched another GPU's memory over NVLink where it may not: a bug of the program", NULL, NULL, CATALOG)
X(139, 139, RESTART_APP, 0, false, VIDEO, NULL, NULL, CATALOG)
X(140, 140, RESET_GPU, 0, true, "an uncorrected memory error that no handler took", NULL, NULL, BOTH)
X(141, 141, IGNORE, 0, false, "an error on CUDA's fast path of submitting work", NULL, NULL, CATALOG)
X(143, 143, RESET_GPU, 0, false, "the GPU could not be initialised", NULL, NULL, BOTH)
X(144, 150, WORKFLOW_NVLINK5_ERR, 0, false, "an NVLink 5 unit reported an error (Blackwell)", NULL, NULL, BOTH)
X(151, 151, RESTART_VM, 0, false, "exchanging the keys of confidential computing failed", NULL, NULL, BOTH)
X(152, 153, IGNORE, 0, false, "an error of the deep-learning accelerator block", NULL, NULL, CATALOG)
X(154, 154, XID_154, 0, false, "the driver changed its recommendation for this GPU", NULL, NULL, BOTH)
X(155, 155, RESET_GPU, 0, false, "software reported an error on NVLink", NULL, NULL, BOTH)
X(156, 156, RESET_GPU, 0, false, "a part of the chip was recorded for retirement",
  "drain and reset it, which puts the retirement into effect", NULL, BOTH)
X(157, 157, IGNORE, ISOLATE, false, "a part of the chip could not be retired: nothing is left to repair with",
  "keep it until the job ends, then ask support for a replacement",
  "NVIDIA's first action is none and its second is support", BOTH)
X(158, 158, RESET_GPU, 0, false, "the GPU ran into a timeout that it cannot recover from", NULL, NULL, BOTH)
X(159, 159, CHECK_UVM, 0, false, "an error on the coherent link to the CPU that carried no data", NULL, NULL, BOTH)
X(160, 160, IGNORE, 0, true, "a memory channel was recorded for repair: a success",
  "let the job continue; reset the GPU between jobs", NULL, MEMORY)
X(161, 161, IGNORE, 0, true, "a memory channel could not be recorded for repair",
  "keep it until the job ends, then ask support", NULL, CATALOG)
X(162, 162, NONE_LISTED, 0, false, "the circuit that smooths power draw works again", NULL, NULL, BOTH)
X(163, 163, NONE_LISTED, 0, false, "the circuit that smooths power draw was switched off", NULL, NULL, BOTH)
X(164, 164, NONE_LISTED, 0, false, "the circuit that smooths power draw nears the end of its life",
  "plan a replacement", NULL, BOTH)
X(165, 165, NONE_LISTED, ISOLATE, false, "the circuit that smooths power draw is worn out", "plan a replacement",
  "AWS's health check watches by default and isolates in its strict mode", BOTH)
X(168, 168, BOOT_OR_ECC, 0, true, "errors in the protected part of memory; the GPU has less memory than it should",
  NULL, NULL, BOTH)
X(171, 171, NONE_LISTED, 0, true, "says of the XID 48 near it: the error was in DRAM",
  "act on the 48; a reset puts the spare row into effect", NULL, MEMORY)
X(172, 172, NONE_LISTED, 0, false, "says of the XID 48 near it: the error was in SRAM, where no spare rows help",
  "act on the 48; replace the GPU if nvidia-smi -q -d ECC says SRAM Threshold Exceeded: Yes", NULL, MEMORY)
#endif
