"""From a configuration to a running manager; also the objects that `kueuelib install` writes."""
