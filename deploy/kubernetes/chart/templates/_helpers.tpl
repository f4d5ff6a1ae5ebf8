{{/* What the objects are called; a Service's name begins with a letter. */}}
{{- define "tunerd.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-tunerd" .Release.Name) (contains "tunerd" .Release.Name) -}}
{{- $name = default $name .Values.fullnameOverride -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$" $name) -}}
{{- fail (printf "%q cannot be the name of a Service: set fullnameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{/* By which Pods are found. The name stays: alert rules ask for job="tunerd". */}}
{{- define "tunerd.selector" -}}
app.kubernetes.io/name: tunerd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of an object: (list . more). */}}
{{- define "tunerd.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "tunerd.selector" $root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "tunerd" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $more := merge (dict) (index . 1) $root.Values.labels -}}
{{- range $key, $_ := $more -}}
{{- if hasKey $own $key -}}
{{- fail (printf "labels: %s is the chart's own" $key) -}}
{{- end -}}
{{- end -}}
{{- merge $own $more | toYaml -}}
{{- end }}

{{/* metadata of an object: (list . suffix-of-its-name more-labels). */}}
{{- define "tunerd.metadata" -}}
{{- $root := index . 0 -}}
metadata:
  name: {{ include "tunerd.fullname" $root }}{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tunerd.labels" (list $root (index . 2)) | nindent 4 }}
{{- end }}

{{/* The file (list . path) of the chart. In a checkout they are links into ../daemon. */}}
{{- define "tunerd.file" -}}
{{- $root := index . 0 -}}
{{- required (printf "%s is missing from the chart: links were not followed; take what `helm package` makes" (index . 1)) ($root.Files.Get (index . 1)) -}}
{{- end }}

{{/* What a TOML file says, as JSON: (list what-to-call-it text). */}}
{{- define "tunerd.toml" -}}
{{- $toml := index . 1 | fromToml -}}
{{- with $toml.Error -}}{{- fail (printf "%s: no TOML: %v" (index $ 0) .) -}}{{- end -}}
{{- if contains "\u0085" (index . 1) -}}{{- fail (printf "%s: U+0085 gets lost in YAML" (index . 0)) -}}{{- end -}}
{{- $toml | toJson -}}
{{- end }}

{{/* The text of tunerd.toml. */}}
{{- define "tunerd.settings" -}}
{{- .Values.settings | default (include "tunerd.file" (list . "files/tunerd.toml")) -}}
{{- end }}

{{/* What tunerd.toml says, as JSON. Refused: what cannot run in a Pod, or would show pages to everybody. */}}
{{- define "tunerd.parsed" -}}
{{- $toml := include "tunerd.toml" (list "settings" (include "tunerd.settings" .)) | fromJson -}}
{{- range list "stream" "topics" "store" "http" -}}
{{- if not (kindIs "map" (index $toml . | default dict)) -}}
{{- fail (printf "settings: %s has to be a table" .) -}}
{{- end -}}
{{- end -}}
{{- $http := $toml.http | default dict -}}
{{- if not (dig "enabled" true $http) -}}
{{- fail "settings: http.enabled is false, and probes ask it" -}}
{{- end -}}
{{- if or (not $http.host) (hasPrefix "127." (toString $http.host)) (has $http.host (list "localhost" "::1")) -}}
{{- fail "settings: http.host is loopback, where neither probes nor Prometheus come: set \"0.0.0.0\"" -}}
{{- end -}}
{{- if and (or $http.pages $http.names $http.actions) (not (and $http.certificate_file $http.read_token_file)) -}}
{{- fail "settings: http.pages, names and actions need http.certificate_file and http.read_token_file beyond loopback" -}}
{{- end -}}
{{- if not (hasPrefix "postgresql" (toString (dig "store" "url" "" $toml))) -}}
{{- fail "settings: store.url has to be of a PostgreSQL: what a Pod has on disk may be lost" -}}
{{- end -}}
{{- if ne (toString (dig "stream" "kind" "" $toml)) "kafka" -}}
{{- fail "settings: stream.kind has to be \"kafka\": what a Pod has on disk may be lost" -}}
{{- end -}}
{{- $toml | toJson -}}
{{- end }}

{{- define "tunerd.port" -}}
{{- dig "http" "port" 9464 (include "tunerd.parsed" . | fromJson) -}}
{{- end }}

{{/* Empty where HTTP is plain. */}}
{{- define "tunerd.https" -}}
{{- if dig "http" "certificate_file" "" (include "tunerd.parsed" . | fromJson) }}yes{{ end -}}
{{- end }}

{{/* Study files, as JSON: name: text. */}}
{{- define "tunerd.studies" -}}
{{- $studies := dict -}}
{{- range $path, $_ := .Files.Glob "files/studies/*.toml" -}}
{{- $_ := set $studies (base $path) ($.Files.Get $path) -}}
{{- end -}}
{{- $studies = .Values.studies | default $studies -}}
{{- range $name, $text := $studies -}}
{{- $_ := include "tunerd.toml" (list (printf "studies: %s" $name) $text) -}}
{{- end -}}
{{- $studies | toJson -}}
{{- end }}

{{- define "tunerd.probe" -}}
path: {{ index . 1 }}
port: http
{{- if include "tunerd.https" (index . 0) }}
scheme: HTTPS
{{- end }}
{{- end }}
