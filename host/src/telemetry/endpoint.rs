//! A collector: where data is sent by OTLP over HTTP with protobuf, and how the broker calls itself there.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;

use crate::config::TelemetryConfig;
use crate::http_receiver::HttpReceiver;
use crate::secret::SecretStore;

/// The name under which the broker is known there.
const NAME: &str = "portcullis";

/// The address below a collector's that receives one kind of data.
pub(super) struct CollectorEndpoint {
    server: HttpReceiver,
    headers: HeaderMap,
}

impl CollectorEndpoint {
    /// Prepares the address for one kind of data. `table` is where the configuration has it.
    pub(super) fn new(
        config: &TelemetryConfig,
        path: &str,
        table: &str,
        secrets: &SecretStore,
    ) -> Result<Self, String> {
        let mut url = config.otlp.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let value = secrets.resolve(value).map_err(|error| error.to_string())?;
            let bad =
                |_| format!("header `{name}` under {table} cannot be sent: take control characters out of its value");
            let name = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is not a header name"))?;
            headers.insert(name, HeaderValue::try_from(value.expose_secret()).map_err(bad)?);
        }
        Ok(Self { server: HttpReceiver::new(url)?, headers })
    }

    /// Returns the address, safe to show.
    pub(super) fn shown(&self) -> String {
        self.server.shown()
    }

    /// Sends a message, and waits until the collector has taken it.
    pub(super) async fn post(&self, message: Vec<u8>) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        self.server.post(headers, self.headers.clone(), message.into()).await
    }
}

/// Returns an attribute that is a text.
pub(super) fn text(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Returns what describes the broker.
pub(super) fn resource() -> Resource {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let attributes = vec![text("service.name", NAME.to_owned()), text("service.version", version)];
    Resource { attributes, ..Resource::default() }
}

/// Returns what describes the part of the broker that made the data.
pub(super) fn scope() -> InstrumentationScope {
    let (name, version) = (NAME.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}
