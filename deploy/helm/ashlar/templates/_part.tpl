{{- /* The objects of one folder of manifests. root: the chart's scope; folder; values: of the part. */}}
{{- define "ashlar.folder" }}
{{- $root := .root }}
{{- $values := .values }}
{{- range $path, $_ := $root.Files.Glob (printf "manifests/%s/*.yaml" .folder) }}
{{- range $text := splitList "\n---\n" ($root.Files.Get $path) }}
{{- $object := fromYaml $text }}
{{- if not (or (and (eq $object.kind "PodMonitor") (not $root.Values.podMonitors)) (and (eq $object.kind "HorizontalPodAutoscaler") (not $values.autoscaler))) }}
{{- include "ashlar.placed" (dict "root" $root "object" $object) }}
{{- if or (eq $object.kind "DaemonSet") (eq $object.kind "Deployment") }}
{{- include "ashlar.workload" (dict "root" $root "values" $values "object" $object) }}
{{- end }}
{{- $object = mergeOverwrite $object (get $values.patch $object.kind | default dict) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* In the namespace of the release; roles of the cluster are in none, and name their account's. */}}
{{- define "ashlar.placed" }}
{{- if hasPrefix "Cluster" .object.kind }}
{{- range $subject := .object.subjects }}
{{- $_ := set $subject "namespace" $.root.Release.Namespace }}
{{- end }}
{{- else }}
{{- $_ := set .object.metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- end }}

{{- /* What values say of pods and their container, by changing the object. */}}
{{- define "ashlar.workload" }}
{{- $values := .values }}
{{- $pod := .object.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- $_ := set $container "image" (printf "%s:%s" .root.Values.image.repository .root.Values.image.tag) }}
{{- if $values.model }}
{{- $words := list }}
{{- range $word := $container.args }}
{{- $words = append $words (ternary $values.model $word (eq $word "/models/model")) }}
{{- end }}
{{- $_ := set $container "args" $words }}
{{- range $volume := $pod.volumes }}
{{- if hasKey $volume "persistentVolumeClaim" }}
{{- $_ := set $volume.persistentVolumeClaim "claimName" $values.claim }}
{{- end }}
{{- end }}
{{- if not $values.autoscaler }}
{{- $_ := set .object.spec "replicas" $values.replicas }}
{{- end }}
{{- end }}
{{- if $values.marks }}
{{- $_ := set $pod "automountServiceAccountToken" true }}
{{- $_ := set $container "args" (concat $container.args (list "--act" "full" "--scheduler" "kubernetes")) }}
{{- end }}
{{- if $values.kernelLog }}
{{- $_ := set $container "securityContext" (dict "privileged" true "readOnlyRootFilesystem" true "runAsUser" 0) }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "kmsg" "mountPath" "/host/dev/kmsg" "readOnly" true)) }}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "kmsg" "hostPath" (dict "path" "/dev/kmsg" "type" "CharDevice"))) }}
{{- end }}
{{- $_ := set $container "args" (concat $container.args $values.args) }}
{{- $_ := set $pod "containers" (list (mergeOverwrite $container $values.container)) }}
{{- end }}
