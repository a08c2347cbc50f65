# kubectl: applies, waits, patches, explains and deletes.
set -eu
kubectl create configmap k --from-literal=x=1
kubectl patch configmap k --patch '{"data": {"x": "2"}}'
test "$(kubectl get configmap k --output 'jsonpath={.data.x}')" = 2
kubectl run web --image=example --overrides '{"spec": {"terminationGracePeriodSeconds": 0}}'
kubectl wait pod/web --for=condition=Ready --timeout=120s
test "$(kubectl get nodes --output name | wc -l)" -eq 2
kubectl explain pod.spec.containers >/dev/null
kubectl delete pod/web configmap/k --timeout=120s
