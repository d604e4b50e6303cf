{{- /* A value as the text of a variable: a whole number without exponent, however Helm read it. */}}
{{- define "regrade.value" -}}
{{- if eq (kindOf .) "float64" -}}{{- if eq . (floor .) -}}{{ printf "%.0f" . }}{{- else -}}{{ . }}{{- end -}}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- /* Whether the heartbeat makes a check: (list . "runners"); empty when it does not. */}}
{{- define "regrade.asks" -}}
{{- $root := index . 0 -}}
{{- if has (index . 1) (splitList "," (nospace $root.Values.heartbeat.checks)) -}}true{{- end -}}
{{- end -}}

{{- /* A role of the heartbeat with its binding, (list . namespace name); its rules follow. */}}
{{- define "regrade.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 2 | quote }}
  namespace: {{ index . 1 | quote }}
  labels: {{- include "regrade.marks" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 2 | quote }}
subjects:
- kind: ServiceAccount
  name: fleet-heartbeat
  namespace: {{ (index . 0).Release.Namespace | quote }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ index . 2 | quote }}
  namespace: {{ index . 1 | quote }}
  labels: {{- include "regrade.marks" . }}
rules:
{{- end -}}

{{- define "regrade.marks" }}
    app.kubernetes.io/component: heartbeat
    app.kubernetes.io/managed-by: regrade
    app.kubernetes.io/name: regrade
    app.kubernetes.io/part-of: regrade
{{- end -}}
