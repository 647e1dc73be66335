"""Mirror of broker/cluster; `brokers` makes clusters for every test of brokers."""
