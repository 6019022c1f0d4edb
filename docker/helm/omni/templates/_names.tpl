{{- define "omni.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "omni.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "omni.labels" -}}
{{ include "omni.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "omni.secret" -}}
{{- .Values.secrets.existingSecret | default (include "omni.name" .) -}}
{{- end -}}

{{- define "omni.hasKeys" -}}
{{- if or .Values.secrets.existingSecret .Values.secrets.apiKeys }}yes{{ end -}}
{{- end -}}

{{- /* An image by digest when there is one, else by tag, which is the chart's version by default. */ -}}
{{- define "omni.image" -}}
{{- $tag := .image.tag | default .version -}}
{{- .image.repository }}:{{ $tag }}{{ with .image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* {max_sessions: 64} as environment variables OMNI_MAX_SESSIONS. */ -}}
{{- define "omni.environment" -}}
{{- range $name, $value := . }}
- name: OMNI_{{ upper $name }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end -}}
