// The JavaScript client: lists nodes, watches, and makes and deletes a ConfigMap.
import assert from "node:assert";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// An import does not look at NODE_PATH; require does, and tells where the package is.
const found = createRequire(import.meta.url).resolve("@kubernetes/client-node");
const k8s = await import(pathToFileURL(found).href);
const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
assert.equal((await core.listNode()).items.length, 2);
const namespace = "default";
const seen = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error("no event in 120 s")), 120_000).unref();
  new k8s.Watch(config)
    .watch(`/api/v1/namespaces/${namespace}/configmaps`, {}, (type, object) => {
      if (object.metadata.name === "n") resolve(type);
    }, () => {})
    .catch(reject);
});
const body = { metadata: { name: "n" }, data: { x: "1" } };
await core.createNamespacedConfigMap({ namespace, body });
assert.equal(await seen, "ADDED");
const read = await core.readNamespacedConfigMap({ namespace, name: "n" });
assert.equal(read.data.x, "1");
await core.deleteNamespacedConfigMap({ namespace, name: "n" });
process.exit(0);
