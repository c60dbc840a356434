# What the scripts of this folder share: sourced by prolog.sh, epilog.sh and health.sh. Settings of a site are in /etc/ashlar/slurm.env.
set -u
export PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/bin
ASHLAR=ashlar           # the program
CHECK_WORDS=            # more words for `ashlar check node`: --machine p5.48xlarge
STARTS_MAX=3            # starts of one job that may meet an unfit node: then the job is held
[ ! -r "${ASHLAR_SLURM_ENV:-/etc/ashlar/slurm.env}" ] || . "${ASHLAR_SLURM_ENV:-/etc/ashlar/slurm.env}"
node=${SLURMD_NODENAME:-$(hostname -s)}

# Prints why this node is not fit, in one line; nothing where it is. A check that hangs is a reason, too.
reason_not_fit() {
    local said code=0
    said=$(timeout -k 1 45 "$ASHLAR" check node --quick $CHECK_WORDS 2>&1) || code=$?
    [ "$code" -ne 0 ] || return 0
    [ "$code" -ne 124 ] && [ "$code" -ne 137 ] || { echo "the check did not end in 45 s" && return; }
    ! grep -q '^BAD' <<< "$said" || said=$(grep '^BAD' <<< "$said" | sed 's/^BAD *//; s/  */ /g' | paste -sd ';')
    head -c 200 <<< "$said"
}
# Out of service, with the reason. Its jobs continue; no new ones come.
drain() { scontrol update NodeName="$node" State=DRAIN Reason="ashlar check: $1"; }
