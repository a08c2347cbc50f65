# kueuectl: creates queues, lists what waits with positions, stops, resumes, describes and deletes.
set -eu
kueuectl=kubectl-kueue
submit() {
  kubectl create --filename - <<EOF
apiVersion: batch/v1
kind: Job
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: pink}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
EOF
}
# Job, status and position of every Workload, in one line.
jobs() {
  $kueuectl list workload --localqueue pink "$@" | awk '$2 == "job" {print $3, $6, $7 ~ /^[0-9]+$/ ? $7 : ""}' |
    sort | tr -s '\n ' ' '
}
# Asks until the answer is as expected.
until_is() {
  expected=$1
  shift
  for _ in $(seq 300); do
    found=$("$@") || found="exit code $?"
    if [ "$found" = "$expected" ]; then return; fi
    sleep 0.2
  done
  echo "'$*' says '$found' instead of '$expected'" >&2
  exit 1
}
of() { kubectl get "$1" --output "jsonpath={.spec.$2}"; }

$kueuectl create resourceflavor pink
$kueuectl create clusterqueue pink --nominal-quota pink:cpu=1
$kueuectl create localqueue pink --clusterqueue pink
submit one
until_is "one ADMITTED " jobs
submit two
until_is "one ADMITTED two PENDING 0 " jobs
sleep 1.1 # creation times have whole seconds
submit zero
until_is "one ADMITTED two PENDING 0 zero PENDING 1 " jobs
until_is "two PENDING 0 zero PENDING 1 " jobs --status pending
$kueuectl list clusterqueue | grep -E '^pink +2 +1 +true '
$kueuectl list localqueue | grep -E '^pink +pink +2 +1 '
$kueuectl list resourceflavor | grep '^pink '
until_is 1 sh -c "$kueuectl list pods --for job/one | grep -c '^one-.* Running'"

one=$(kubectl get workloads --output 'jsonpath={.items[?(@.metadata.ownerReferences[0].name=="one")].metadata.name}')
$kueuectl stop workload "$one"
until_is "one PENDING two ADMITTED zero PENDING 0 " jobs
$kueuectl resume workload "$one"
until_is "one PENDING 0 two ADMITTED zero PENDING 1 " jobs
$kueuectl stop clusterqueue pink --keep-already-running
test "$(of clusterqueue/pink stopPolicy)" = Hold
$kueuectl resume clusterqueue pink
test "$(of clusterqueue/pink stopPolicy)" = None
$kueuectl stop localqueue pink
until_is "one PENDING two PENDING zero PENDING " jobs
$kueuectl resume localqueue pink
until_is "one ADMITTED two PENDING 0 zero PENDING 1 " jobs

$kueuectl get workload "$one"
$kueuectl describe workload "$one" | grep -E '^Kind: +Workload'
$kueuectl patch workload "$one" --type merge --patch '{"metadata": {"labels": {"a": "b"}}}'
EDITOR=true $kueuectl edit workload "$one"
$kueuectl delete localqueue pink
$kueuectl delete workload "$one" --yes
until_is "" kubectl get job one --ignore-not-found --output name
$kueuectl version | grep '^Client Version'
