//! The network of a component: `wasi:sockets` and `wasi:http`, limited by its [`ComponentEgress`], which resolves
//! names, checks each connection and makes the requests. There are no listening sockets and no UDP.

use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::vec;

use http_body_util::BodyExt as _;
use hyper::{Method, Request, Response};
use portcullis_net::egress::{ComponentEgress, EgressError, LookedUpNames};
use reqwest::Body;
use tokio::time::timeout;
use url::Url;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{WasiCtxBuilder, WasiView as _};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::super::guest::GuestState;
use super::wasi;

/// The network of one instance; `None` if nothing is granted.
#[derive(Default)]
pub(super) struct InstanceNetwork(Option<Route>);

#[derive(Clone)]
struct Route {
    egress: Arc<ComponentEgress>,
    found: Arc<LookedUpNames>,
}

impl InstanceNetwork {
    pub(super) fn by(egress: Option<&Arc<ComponentEgress>>) -> Self {
        Self(egress.map(|egress| Route { egress: Arc::clone(egress), found: Arc::default() }))
    }

    /// Lets sockets connect to granted destinations. By default a context allows no connection.
    pub(super) fn open(&self, builder: &mut WasiCtxBuilder) {
        let Some(Route { egress, found }) = self.0.clone() else { return };
        builder.allow_tcp(true).socket_addr_check(move |address, usage| {
            let admitted = match usage {
                SocketAddrUse::TcpConnect => egress.admits(&found, address),
                // A connection also has a local end, whose address the system chooses.
                SocketAddrUse::TcpBind => address.ip().is_unspecified() && address.port() == 0,
                _ => false,
            };
            Box::pin(ready(admitted))
        });
    }
}

/// Returns the error that a component gets for a request that is not made. The ledger has the reason.
fn refusal(error: EgressError) -> Error {
    match error {
        EgressError::Refused { address: None, .. } | EgressError::Url { .. } => Error::HttpRequestDenied,
        EgressError::Refused { .. } => Error::DestinationIpProhibited,
        EgressError::Dns { cause, .. } => Error::DnsError { rcode: Some(cause), info_code: None },
        error => Error::InternalError(Some(error.to_string())),
    }
}

type Sent = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for InstanceNetwork {
    /// The HTTP client sets the header from the URL.
    fn set_host_header(&mut self) -> bool {
        false
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let egress = self.0.as_ref().map(|ways| Arc::clone(&ways.egress)).ok_or(Error::HttpRequestDenied);
        Box::new(async move {
            let sent = async move { egress?.send(outgoing(request)?).await.map_err(refusal) };
            // A request without its own timeout is bounded by the timeout of the call.
            let response = match options.and_then(|options| options.first_byte_timeout) {
                Some(limit) => timeout(limit, sent).await.unwrap_or(Err(Error::HttpResponseTimeout)),
                None => sent.await,
            };
            let broken = |error: reqwest::Error| Error::InternalError(Some(error.to_string()));
            let response = Response::<Body>::from(response?).map(|body| body.map_err(broken).boxed_unsync());
            let done: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(ready(Ok(())));
            Ok((response, done))
        })
    }
}

/// Converts a guest's request into one of the broker's HTTP client.
fn outgoing(request: Request<WasiBody>) -> Result<reqwest::Request, Error> {
    let (head, body) = request.into_parts();
    if head.method == Method::CONNECT {
        // A tunnel, whose contents could not be checked.
        return Err(Error::HttpRequestMethodInvalid);
    }
    let url = Url::parse(&head.uri.to_string()).map_err(|_| Error::HttpRequestUriInvalid)?;
    let mut outgoing = reqwest::Request::new(head.method, url);
    *outgoing.headers_mut() = head.headers;
    if !http_body::Body::is_end_stream(&body) {
        *outgoing.body_mut() = Some(Body::wrap_stream(body.into_data_stream()));
    }
    Ok(outgoing)
}

/// The addresses of a name that the component has not read yet.
struct Addresses(vec::IntoIter<IpAddr>);

#[async_trait::async_trait]
impl Pollable for Addresses {
    /// All addresses are known from the start.
    async fn ready(&mut self) {}
}

/// Defines `wasi:sockets/ip-name-lookup` under the name that the component imports, in place of the one
/// that asks the system.
pub(super) fn link_names(linker: &mut Linker<GuestState>, imports: &[String]) -> wasmtime::Result<()> {
    let Some(import) = imports.iter().find(|name| wasi(name) == Some(("sockets", "ip-name-lookup"))) else {
        return Ok(());
    };
    linker.allow_shadowing(true);
    let mut names = linker.instance(import)?;
    names.resource("resolve-address-stream", ResourceType::host::<Addresses>(), |mut store, rep| {
        store.data_mut().ctx().table.delete(Resource::<Addresses>::new_own(rep))?;
        Ok(())
    })?;
    names.func_wrap_async(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, GuestState>, (network, name): (Resource<Network>, String)| {
            Box::new(async move {
                store.data_mut().ctx().table.get(&network)?;
                let Some(ways) = store.data_mut().reachable().0.clone() else {
                    return Ok((Err(ErrorCode::AccessDenied),));
                };
                let found = match ways.egress.look_up(&ways.found, &name).await {
                    Ok(addresses) => Addresses(addresses.into_iter()),
                    Err(EgressError::Refused { .. }) => return Ok((Err(ErrorCode::AccessDenied),)),
                    Err(_) => return Ok((Err(ErrorCode::NameUnresolvable),)),
                };
                Ok((Ok::<_, ErrorCode>(store.data_mut().ctx().table.push(found)?),))
            })
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, GuestState>, (addresses,): (Resource<Addresses>,)| {
            let next = store.data_mut().ctx().table.get_mut(&addresses)?.0.next();
            Ok((Ok::<_, ErrorCode>(next.map(IpAddress::from)),))
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, GuestState>, (addresses,): (Resource<Addresses>,)| {
            let pollable: Resource<DynPollable> = subscribe(store.data_mut().ctx().table, addresses)?;
            Ok((pollable,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
