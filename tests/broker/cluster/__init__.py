"""Several brokers as one cluster; `brokers` makes clusters for every test of brokers."""
