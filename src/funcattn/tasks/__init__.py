"""One file a benchmark: data, split, loss, metric, the settings of the paper."""
