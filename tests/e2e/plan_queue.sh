#!/usr/bin/env bash
# `ashlar plan queue` as a user meets it: all forms of traces, drawn jobs, comparisons, exports, charts, mistakes.
. "$SOURCE/tests/e2e/lib.bash"
queue() { "$ASHLAR" plan queue "$@"; }
holds() { # what, words...
    local what=$1 words
    shift
    for words in "$@"; do
        grep -qF -- "$words" "$SCRATCH/out" || fail "$what: '$words' is missing: $(head -c 2000 "$SCRATCH/out")"
    done
}
cd "$SCRATCH" || exit 1
printf 'submit_s,duration_s,gpus,queue\n0,100,8,a\n10,50,16,b\n20,30,1,a\n' > philly.csv
gzip -kf philly.csv
printf '[{"status": "Pass", "vc": "v", "jobid": "j", "user": "u", "submitted_time": "2017-10-09 07:02:03", "attempts": [{"start_time": "2017-10-09 07:02:30", "end_time": "2017-10-09 08:02:30", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}]' > philly.json
printf 'job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n1,u1,vc1,8,4,1,COMPLETED,2020-04-01 00:06:06,2020-04-01 00:06:14,2020-04-01 00:07:14,60,8\n2,u1,vc1,0,4,1,COMPLETED,2020-04-01 00:06:06,x,x,60,8\n' > helios.csv
printf 'job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n1,u,2,16,32,Pretrain,COMPLETED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:02:08+00:00,60,10,960\n' > acme.csv
printf 'name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np1,6000,12288,1,460,,LS,Running,100,1000,110\n' > openb.csv
printf '; SWF\n1 0 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1\n2 10 5 100 16 -1 -1 16 200 -1 1 4 1 -1 2 -1 -1 -1\n' > trace.swf
printf 'JobID|User|Account|QOS|Submit|Elapsed|Timelimit|NNodes|AllocTRES\n1|ann|ml|normal|2024-01-01T00:00:00|01:00:00|2-00:00:00|1|billing=8,cpu=8,gres/gpu=8,node=1\n1.batch|ann|ml||2024-01-01T00:00:00|01:00:00||1|cpu=8,gres/gpu=8\n2|bob|ml|high|2024-01-01T00:10:00|00:30:00|UNLIMITED|2|gres/gpu:h100=16\n' > sacct.txt
check_trace() { # file, format, jobs
    try queue "$1" --cluster 4x8 --json
    expect 0 "$1"
    holds "$1" "\"trace\": \"$2\"" "\"jobs\": $3" '"used"'
}
check_trace philly.csv Philly 3
check_trace philly.csv.gz Philly 3
check_trace philly.json Philly 1
check_trace helios.csv Helios 1
check_trace acme.csv Acme 1
check_trace openb.csv openb 1
check_trace trace.swf SWF 2
check_trace sacct.txt sacct 2

leak_free queue --generate acme --jobs 2000 --cluster 64xp5.48xlarge --topology 8,32 --compare fifo,easy,conservative,slurm,kueue,kai --failures --mtbf-days 2 --group 2 --spares 1 --page page.html
expect 0 "drawn jobs under all policies"
holds "drawn jobs" "ashlar: " "fifo: " "conservative: " "kai: " "host failures" "Jain's index" "jobs on several hosts" "GPU hours lost" "mean wait, s" "verdict: " " is the best in "
grep -q '<svg' page.html || fail "the page has no chart"
first=$(queue --generate philly --jobs 500 --cluster 8x8 --json | grep -v simulated_s | cksum)
same "the same draws give the same answer" "$first" "$(queue --generate philly --jobs 500 --cluster 8x8 --json | grep -v simulated_s | cksum)"

cat > policy.yaml << 'YAML'
preset: slurm
queues: [{name: ml, shares: 3, max_user_gpus: 16}, {name: hpc, gpus: 8}]
classes: [{name: normal, priority: 10}, {name: high, priority: 90}]
YAML
leak_free queue sacct.txt --cluster 4x8 --policy policy.yaml
expect 0 "a policy of one's own"
try queue --policy policy.yaml --cluster 4x8 --export slurm
expect 0 "for Slurm"
holds "for Slurm" "PriorityWeightFairshare=100000" "add account ml parent=root fairshare=3" "MaxTRESPerUser=gres/gpu=16" \
    "add qos high set Priority=90 Flags=DenyOnLimit Preempt=normal" "# not expressed: the quota of hpc"

# 200 jobs as they waited in a real Slurm, whose third column says how long: the simulator's mean is within 10 % of that.
printf 'preset: easy\nbackfill: replan\ninterval: 0.01s\nturnaround: 0.48s\n' > like_slurm.yaml
try queue "$SOURCE/tests/plan/queue/slurm_backfill.swf" --cluster 8x1 --policy like_slurm.yaml --json
expect 0 "Slurm's jobs"
real=$(awk '!/^;/ { sum += $3; jobs++ } END { print sum / jobs }' "$SOURCE/tests/plan/queue/slurm_backfill.swf")
simulated=$(grep -o '"mean_s": [0-9.]*' out | head -n 1 | cut -d' ' -f2)
awk -v a="$simulated" -v b="$real" 'BEGIN { exit !(a > 0.9 * b && a < 1.1 * b) }' || fail "a wait of $simulated s on average; Slurm's was $real s"

# mistakes
try queue --cluster 4x8
expect_error 2 "no jobs" "give a trace, or --generate"
try queue --generate acme
expect_error 2 "no cluster" "--cluster"
try queue --generate mars --cluster 4x8
expect_error 1 "an unknown cluster to draw from" "acme, helios or philly"
try queue nothing.csv --cluster 4x8
expect_error 1 "a trace that is not there" "nothing.csv"
printf 'a,b\n1,2\n' > odd.csv
try queue odd.csv --cluster 4x8
expect_error 1 "a table of something else" "odd.csv: line 1: not a header of Philly"
printf '1 2 x\n' > odd.swf
try queue odd.swf --cluster 4x8
expect_error 1 "SWF with words" "odd.swf: line 1: 'x' is not a number"
try queue philly.csv --cluster 4x8 --policy nonesuch
expect_error 1 "an unknown policy" "there is no policy 'nonesuch'"
printf 'preset: easy\nbackfil: easy\n' > bad.yaml
try queue philly.csv --cluster 4x8 --policy bad.yaml
expect_error 1 "a misspelt key" "bad.yaml: policy: 'backfil' is not known; did you mean 'backfill'?"
printf 'queues: [{name: a, parent: b}]\n' > bad.yaml
try queue philly.csv --cluster 4x8 --policy bad.yaml
expect_error 1 "a parent that is not there" "its parent 'b' must come before it"
try queue philly.csv --cluster 4x8 --topology 3,7
expect_error 1 "racks that do not divide a block" "multiple"
try queue philly.csv --cluster 4x99
expect_error 1 "hosts with too many GPUs" "1 to 16 GPUs"
# A file that is called like a preset is not in its way.
echo 'no: policy' > ashlar
try "$ASHLAR" plan queue --generate acme --jobs 100 --cluster 10x8 --json
expect 0 "a preset beside a file of its name"
finish
