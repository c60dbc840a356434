#!/usr/bin/env bash
# deploy/aws: every file, filled in, passes the schema of the tool that reads it (ParallelCluster, eksctl, Kubernetes, the chart; CloudFormation
# by cfn-lint where it is installed), and planted mistakes do not. Its scripts run on a node that is this machine with a root of its own and
# stand-ins for AWS. Skips without Node.js.
. "$SOURCE/tests/e2e/lib/npm.sh"
need_npm aws ajv ajv-formats yaml @bufbuild/cel
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/lib.bash" || exit 1
ln -sfn "$modules" "$SCRATCH/node_modules"
mkdir "$SCRATCH/kube"
cp "$SOURCE/tests/aws/check.mjs" "$SCRATCH"
cp "$SOURCE"/tests/kube/*.mjs "$SCRATCH/kube"
cd "$SCRATCH" || exit 1
aws=$SOURCE/deploy/aws
scripts=("$aws"/*.sh "$aws"/hyperpod/*.sh)
! command -v shellcheck > /dev/null || shellcheck "${scripts[@]}" > out || fail "shellcheck: $(cat out)"

# ---- files -------------------------------------------------------------------------------------------------------------
mkdir stubs
cat > stubs/aws << 'STUB'
#!/usr/bin/env bash
echo "aws $*" >> "$LOG"
case "$1 $2" in
"cloudformation describe-stacks") [ "$4" = ashlar-base ] && printf '%s\t%s\n' Region us-east-1 Account 123456789012 Vpc vpc-0123456789abcdef0 Zone us-east-1a \
    OtherZone us-east-1b PrivateSubnet subnet-0123456789abcdef0 OtherPrivateSubnet subnet-0123456789abcdef1 PublicSubnet subnet-0123456789abcdef2 \
    SecurityGroup sg-0123456789abcdef0 Bucket sagemaker-ashlar FileSystem fs-0123456789abcdef0 FileSystemDns fs.example FileSystemMount abcdefgh ;;
"s3 cp") cp "$BUNDLE/${4##*/}" "$5" ;;
"s3 sync") ;;
*) exit 1 ;;
esac
STUB
chmod +x stubs/aws
export LOG=$SCRATCH/log BUNDLE=$SCRATCH/bundle
filled() { # file, name=value...: into its own name here
    try env PATH="$SCRATCH/stubs:$PATH" "$aws/fill.sh" ashlar-base "$aws/$1" "${@:2}"
    expect 0 "filling $1"
    cp out "$(basename "$1")"
}
filled parallelcluster/cluster.yaml KeyName=me P5Reservation=cr-1 P5enReservation=cr-2 P6Reservation=cr-3
mv cluster.yaml parallelcluster.yaml
filled eks/cluster.yaml Machine=p5.48xlarge Nodes=2 Reservation=cr-1
filled eks/storage.yaml Namespace=default
filled eks/values.yaml Machine=p5.48xlarge
try env PATH="$SCRATCH/stubs:$PATH" "$aws/fill.sh" ashlar-base "$aws/eks/cluster.yaml" Nodes=2
expect 1 "names without a value"
grep -q 'also needs: Machine Reservation$' err || fail "which names have none: $(cat err)"
try env PATH="$SCRATCH/stubs:$PATH" "$aws/fill.sh" nowhere "$aws/eks/cluster.yaml"
expect 1 "a stack that is not there"
cards=$(for machine in p5.48xlarge p5e.48xlarge p5en.48xlarge p6-b200.48xlarge; do
    echo "$machine $("$ASHLAR" catalog show $machine | awk '$1 == "network_adapters" { print $2 }')"
done)
check() { try node check.mjs "$SOURCE/tests/aws" "$cards" "$@"; }
templates=()
for file in base pcs/cluster hyperpod/slurm hyperpod/eks; do templates+=(template "$aws/$file.yaml"); done
check parallelcluster parallelcluster.yaml eksctl cluster.yaml "${templates[@]}"
same "the files" "0 6 files, 0 problems" "$code $(cat out)"
# Planted mistakes: each is found.
mistakes=() wanted=()
wrong() { # kind, file, what sed changes, words of the answer
    local file=wrong${#wanted[@]}.yaml
    sed "$3" "$2" > "$file"
    mistakes+=("$1" "$file")
    wanted+=("$4")
}
wrong parallelcluster parallelcluster.yaml 's/MaxCount/MaxCont/' 'additional properties MaxCont'
wrong parallelcluster parallelcluster.yaml 's/- KillWait: 120/- Prolog: x/' 'sets Prolog itself'
wrong parallelcluster "$aws/parallelcluster/cluster.yaml" '' 'not filled in'
wrong eksctl cluster.yaml 's/efaEnabled/efaEnable/' 'additional properties efaEnable'
wrong eksctl cluster.yaml 's/subnets: \[nodes\]/subnets: [nodes, other]/' 'are in one subnet'
wrong template "$aws/pcs/cluster.yaml" 's/ParameterName: PrologFlags/ParameterName: SlurmdTimeout/' 'does not let others set SlurmdTimeout'
wrong template "$aws/pcs/cluster.yaml" '/NetworkCardIndex: 31/d' 'has 32 cards and gets 31'
wrong template "$aws/base.yaml" 's/!Ref PrivateRoutes/!Ref PrivatRoutes/' 'no PrivatRoutes'
check "${mistakes[@]}"
for i in "${!wanted[@]}"; do
    grep -q "^wrong$i.yaml: .*${wanted[i]}" out || fail "not found in wrong$i.yaml: ${wanted[i]}: $(cat out)"
done
try node kube/check.mjs --all "$SOURCE/tests/kube" storage.yaml
expect 0 "volume and claim: $(cat out)"
try node kube/helm.mjs "$SOURCE/deploy/helm/ashlar" ashlar values.yaml
expect 0 "values of the chart"
grep -q 'pool: gpu' out && grep -q 'image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/ashlar:1' out || fail "what the values change: $(grep image: out)"
if command -v cfn-lint > /dev/null && cfn-lint --version > /dev/null 2>&1; then
    try cfn-lint --region us-east-1 -- "$aws/base.yaml" "$aws/pcs/cluster.yaml" "$aws/hyperpod/slurm.yaml" "$aws/hyperpod/eks.yaml"
    expect 0 "cfn-lint: $(cat out)"
fi
for to in slurm kubernetes; do
    try "$ASHLAR" submit "$aws/first.yaml" --to $to --dry-run job.image=a
    expect 0 "the first job, to $to"
done
try "$ASHLAR" data arithmetic --out sums --count 2000
try "$ASHLAR" train "$aws/first.yaml" data.train=sums data.seq=64 train.steps=2 train.global_batch=16 train.save_every=0 schedule.warmup=0 \
    model.hidden=16 model.layers=1 model.heads=2 model.ffn=32 --out run
expect 0 "the first job, small"

# ---- a node ------------------------------------------------------------------------------------------------------------
printf '#!/bin/sh\nexec %q "$@"\n' "$ASHLAR" > program && chmod +x program
try env PATH="$SCRATCH/stubs:$PATH" "$aws/bundle.sh" program bundle s3://b/ashlar
expect 0 "a bundle"
same "what is in it" "bin/ashlar share/first.yaml slurm/epilog.sh slurm/health.sh slurm/limits.conf slurm/prolog.sh slurm/settings.sh systemd/ashlar-agent.service" \
    "$(tar -tzf bundle/ashlar.tar.gz | grep -v '/$' | LC_ALL=C sort | paste -sd ' ')"
grep -q 's3 sync .*bundle s3://b/ashlar$' log || fail "it does not get into the bucket: $(cat log)"
cat > stubs/curl << 'STUB'
#!/bin/sh
case "$*" in *api/token*) echo token ;; *"token: token"*instance-type*) echo "${INSTANCE:-p5.48xlarge}" ;; *) exit 22 ;; esac
STUB
printf '#!/bin/sh\necho "systemctl $*" >> "$LOG"\ncase "$*" in *is-active*) case " $ACTIVE " in *" ${3} "*) ;; *) exit 3 ;; esac ;; esac\n' > stubs/systemctl
printf '#!/bin/sh\necho "scontrol $*" >> "$LOG"\n' > stubs/scontrol
printf '#!/bin/sh\necho "10.0.128.9 10.0.128.10 "\n' > stubs/hostname
printf '#!/bin/sh\n' > stubs/ldconfig
chmod +x stubs/*
# This machine's root, but what is written into /etc, /opt and /usr/local stays in $SCRATCH/node.
cat > on_node << 'NODE'
set -e
for folder in /etc /opt /usr/local; do
    mkdir -p "$SCRATCH/node$folder/up" "$SCRATCH/node$folder/work"
    mount -t overlay node -o "lowerdir=$folder,upperdir=$SCRATCH/node$folder/up,workdir=$SCRATCH/node$folder/work" "$folder"
done
export PATH=$SCRATCH/stubs:/usr/local/bin:$PATH
exec "$@"
NODE
export SCRATCH
on_node() { try unshare --mount --propagation private bash on_node "$@"; }
on_node true
if [ "$code" -ne 0 ]; then
    echo "aws: the scripts of nodes are not run: $(tail -n 1 err)"
    finish
fi
: > log
on_node bash bundle/node.sh s3://b/ashlar compute
expect 0 "a compute node: $(cat out)"
same "what it counts" 'CHECK_WORDS="--machine p5.48xlarge"' "$(cat node/etc/up/ashlar/slurm.env)"
grep -q 'systemctl enable --now ashlar-agent.service' log || fail "no agent: $(cat log)"
same "limits" '* - memlock unlimited' "$(head -n 1 node/etc/up/security/limits.d/90-ashlar.conf)"
on_node bash bundle/node.sh s3://b/ashlar compute ml.p5en.48xlarge
expect 0 "again, with SageMaker's name of the machine"
same "what it counts" 'CHECK_WORDS="--machine p5en.48xlarge"' "$(cat node/etc/up/ashlar/slurm.env)"
# The prolog that it installed finds that this machine is no p5en, and takes it out of service.
: > log
on_node env SLURM_JOB_ID=7 SLURMD_NODENAME=here /etc/ashlar/slurm/prolog.sh
expect 1 "the prolog on a machine without GPUs"
grep -q 'scontrol update NodeName=here State=DRAIN Reason=ashlar check:.*RDMA devices 0 (wanted: 16)' log || fail "it is not drained: $(cat log)"
INSTANCE=t3.micro on_node bash bundle/node.sh s3://b/ashlar compute
expect 0 "a machine that the catalog does not know"
same "what it counts" "" "$(cat node/etc/up/ashlar/slurm.env)"
on_node bash bundle/node.sh s3://b/ashlar login
expect 2 "a role that is none"
mkdir -p node/opt/up/slurm/etc/scripts/{prolog,epilog}.d node/opt/up/slurm/bin
cp stubs/scontrol node/opt/up/slurm/bin
on_node bash bundle/node.sh s3://b/ashlar head
expect 0 "a head node of ParallelCluster"
on_node sh -c 'SLURM_JOB_ID=7 SLURMD_NODENAME=here /opt/slurm/etc/scripts/epilog.d/50_ashlar'
expect 0 "the epilog that ParallelCluster runs"
on_node bash bundle/node.sh s3://b/ashlar compute p5.48xlarge
grep -q '^PATH=/opt/slurm/bin:\$PATH$' node/etc/up/ashlar/slurm.env || fail "scripts do not find scontrol: $(cat node/etc/up/ashlar/slurm.env)"
# HyperPod: the controller's slurm.conf has the scripts once, compute nodes are counted by their group.
echo '{"InstanceGroups": [{"InstanceType": "ml.m5.4xlarge", "Instances": [{"CustomerIpAddress": "10.0.128.4"}]}, {"InstanceType": "ml.p6-b200.48xlarge", "Instances": [{"CustomerIpAddress": "10.0.128.10"}]}]}' > resources.json
export SAGEMAKER_RESOURCE_CONFIG_PATH=$SCRATCH/resources.json
ACTIVE=slurmd on_node bash bundle/on_init_complete.sh
expect 0 "a compute node of HyperPod"
grep -q -- '--machine p6-b200.48xlarge' node/etc/up/ashlar/slurm.env || fail "what it counts: $(cat node/etc/up/ashlar/slurm.env)"
echo 'ClusterName=hyperpod' > node/opt/up/slurm/etc/slurm.conf
for i in 1 2; do
    ACTIVE=slurmctld on_node bash bundle/on_init_complete.sh
    expect 0 "the controller of HyperPod, $i"
done
same "lines of slurm.conf" 1 "$(grep -c '^Prolog=/etc/ashlar/slurm/prolog.sh$' node/opt/up/slurm/etc/slurm.conf)"
grep -q 'scontrol reconfigure' log || fail "slurmctld is not told: $(cat log)"
SAGEMAKER_RESOURCE_CONFIG_PATH=/nowhere on_node bash bundle/on_init_complete.sh
expect 1 "no node of HyperPod"
# A program of another system says so, and the old one stays.
printf '#!/nowhere\n' > program
"$aws/bundle.sh" program bundle > out
on_node bash bundle/node.sh s3://b/ashlar compute
expect 1 "a program that does not run"
grep -q 'was it built on this image' err || fail "what it says: $(cat err)"
on_node ashlar --version
expect 0 "the program that was there"
finish
