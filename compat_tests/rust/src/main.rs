//! rskafka behind the compatibility cases: one JSON question per line in, one JSON answer per line out
//! (`compat_tests/line_driver.py`). Bytes are base64.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use rskafka::chrono::{DateTime, TimeZone, Utc};
use rskafka::client::error::{Error as KafkaError, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use rskafka::BackoffConfig;
use serde_json::{json, Value};

type Answer = Result<Value, Box<dyn Error>>;

const TIMEOUT_MS: i32 = 10_000;
const FETCH_BYTES: i32 = 1_000_000;

#[derive(Default)]
struct Driver {
    clients: HashMap<String, Arc<Client>>,
}

impl Driver {
    async fn answer(&mut self, question: &Value) -> Answer {
        let client = self
            .client(text(&question["settings"]["bootstrap.servers"])?)
            .await?;
        match text(&question["do"])? {
            "topics" => topics(&client).await,
            "create" => {
                let (name, count) = (text(&question["topic"])?, number(&question["partitions"])?);
                let controller = client.controller_client()?;
                controller
                    .create_topic(name, count as i32, 1, TIMEOUT_MS)
                    .await?;
                Ok(Value::Null)
            }
            "delete" => {
                let controller = client.controller_client()?;
                controller
                    .delete_topic(text(&question["topic"])?, TIMEOUT_MS)
                    .await?;
                Ok(Value::Null)
            }
            what => of_partition(&partition(&client, question).await?, what, question).await,
        }
    }

    async fn client(&mut self, bootstrap: &str) -> Result<Arc<Client>, Box<dyn Error>> {
        if let Some(found) = self.clients.get(bootstrap) {
            return Ok(Arc::clone(found));
        }
        let backoff = BackoffConfig {
            deadline: Some(Duration::from_secs(30)),
            ..Default::default()
        };
        let brokers = bootstrap.split(',').map(str::to_owned).collect();
        let made = Arc::new(
            ClientBuilder::new(brokers)
                .backoff_config(backoff)
                .build()
                .await?,
        );
        self.clients.insert(bootstrap.to_owned(), Arc::clone(&made));
        Ok(made)
    }
}

async fn topics(client: &Client) -> Answer {
    let found = client.list_topics().await?;
    let counts: BTreeMap<_, _> = found
        .into_iter()
        .map(|each| (each.name, each.partitions.len()))
        .collect();
    Ok(json!(counts))
}

async fn partition(client: &Client, question: &Value) -> Result<PartitionClient, Box<dyn Error>> {
    let (topic, index) = (text(&question["topic"])?, number(&question["partition"])?);
    Ok(client
        .partition_client(topic, index as i32, UnknownTopicHandling::Retry)
        .await?)
}

async fn of_partition(partition: &PartitionClient, what: &str, question: &Value) -> Answer {
    match what {
        "produce" => {
            let records = question["records"].as_array().ok_or("no records")?;
            let records = records.iter().map(record).collect::<Result<_, _>>()?;
            let codec = compression(text(&question["codec"])?)?;
            Ok(json!(partition.produce(records, codec).await?))
        }
        "fetch" => {
            let (offset, wait_ms) = (
                number(&question["offset"])?,
                number(&question["wait_ms"])? as i32,
            );
            let (found, high_watermark) = partition
                .fetch_records(offset, 1..FETCH_BYTES, wait_ms)
                .await?;
            let records: Vec<_> = found
                .iter()
                .map(|each| stored(&each.record, each.offset))
                .collect();
            Ok(json!({"records": records, "high_watermark": high_watermark}))
        }
        "offsets" => Ok(json!([
            partition.get_offset(OffsetAt::Earliest).await?,
            partition.get_offset(OffsetAt::Latest).await?,
        ])),
        "offset_for_time" => {
            let at = OffsetAt::Timestamp(time(&question["timestamp_ms"])?);
            Ok(json!(partition.get_offset(at).await?))
        }
        "delete_records" => {
            partition
                .delete_records(number(&question["offset"])?, TIMEOUT_MS)
                .await?;
            Ok(Value::Null)
        }
        other => Err(format!("unknown question {other}").into()),
    }
}

fn record(value: &Value) -> Result<Record, Box<dyn Error>> {
    let headers = value["headers"]
        .as_object()
        .ok_or("headers are not an object")?;
    let headers = headers
        .iter()
        .map(|(key, each)| Ok((key.clone(), bytes(each)?.unwrap_or_default())));
    Ok(Record {
        key: bytes(&value["key"])?,
        value: bytes(&value["value"])?,
        headers: headers.collect::<Result<_, Box<dyn Error>>>()?,
        timestamp: time(&value["timestamp_ms"])?,
    })
}

fn stored(record: &Record, offset: i64) -> Value {
    let encoded = |each: &Option<Vec<u8>>| each.as_ref().map(|bytes| STANDARD.encode(bytes));
    let headers: BTreeMap<_, _> = record
        .headers
        .iter()
        .map(|(key, each)| (key, STANDARD.encode(each)))
        .collect();
    json!({
        "offset": offset,
        "key": encoded(&record.key),
        "value": encoded(&record.value),
        "headers": headers,
        "timestamp_ms": record.timestamp.timestamp_millis(),
    })
}

fn compression(name: &str) -> Result<Compression, Box<dyn Error>> {
    match name {
        "none" => Ok(Compression::NoCompression),
        "gzip" => Ok(Compression::Gzip),
        "snappy" => Ok(Compression::Snappy),
        other => Err(format!("built without {other}").into()),
    }
}

fn text(value: &Value) -> Result<&str, Box<dyn Error>> {
    value
        .as_str()
        .ok_or_else(|| format!("not a string: {value}").into())
}

fn number(value: &Value) -> Result<i64, Box<dyn Error>> {
    value
        .as_i64()
        .ok_or_else(|| format!("not a number: {value}").into())
}

fn bytes(value: &Value) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
    value
        .as_str()
        .map(|each| STANDARD.decode(each))
        .transpose()
        .map_err(Into::into)
}

fn time(value: &Value) -> Result<DateTime<Utc>, Box<dyn Error>> {
    let found = Utc.timestamp_millis_opt(number(value)?).single();
    found.ok_or_else(|| format!("not a time: {value}").into())
}

/// Kafka's number of a broker's error; -1 of anything else.
fn refusal(error: &(dyn Error + 'static)) -> Value {
    let code = match error.downcast_ref::<KafkaError>() {
        Some(KafkaError::ServerError { protocol_error, .. }) => (1..i16::MAX)
            .find(|code| ProtocolError::new(*code) == Some(*protocol_error))
            .unwrap_or(-1),
        _ => -1,
    };
    json!({"error": {"code": code, "class": "rskafka", "text": error.to_string()}})
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut driver = Driver::default();
    for line in std::io::stdin().lock().lines() {
        let question: Value = serde_json::from_str(&line?)?;
        let answer = match runtime.block_on(driver.answer(&question)) {
            Ok(found) => json!({"ok": found}),
            Err(error) => refusal(error.as_ref()),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
