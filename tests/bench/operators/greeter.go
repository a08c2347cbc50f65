// Keeps a ConfigMap with a text for every Greeting.
package main

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

type Spec struct {
	Text string `json:"text"`
}

type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

// What controller-gen would generate.

func (g *Greeting) DeepCopyObject() runtime.Object {
	made := &Greeting{TypeMeta: g.TypeMeta, ObjectMeta: *g.ObjectMeta.DeepCopy(), Spec: g.Spec}
	made.Status.ObservedGeneration = g.Status.ObservedGeneration
	for _, each := range g.Status.Conditions {
		made.Status.Conditions = append(made.Status.Conditions, *each.DeepCopy())
	}
	return made
}

func (l *GreetingList) DeepCopyObject() runtime.Object {
	made := &GreetingList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		made.Items = append(made.Items, *l.Items[i].DeepCopyObject().(*Greeting))
	}
	return made
}

type reconciler struct{ client.Client }

// Reconcile creates the ConfigMap, or brings it back to the text of the Greeting.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var greeting Greeting
	if err := r.Get(ctx, req.NamespacedName, &greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !greeting.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: greeting.Name, Namespace: greeting.Namespace}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, config, func() error {
		config.Data = map[string]string{"text": greeting.Spec.Text}
		return controllerutil.SetControllerReference(&greeting, config, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	changed := greeting.Status.ObservedGeneration != greeting.Generation
	greeting.Status.ObservedGeneration = greeting.Generation
	changed = meta.SetStatusCondition(&greeting.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Written",
		Message: "the ConfigMap has the text", ObservedGeneration: greeting.Generation,
	}) || changed
	if !changed {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Update(ctx, &greeting)
}

func main() {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	scheme.AddKnownTypes(group, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, group)
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	must(err)
	must(ctrl.NewControllerManagedBy(mgr).
		For(&Greeting{}).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(&reconciler{mgr.GetClient()}))
	must(mgr.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "failed")
		os.Exit(1)
	}
}
