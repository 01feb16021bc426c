//! The certificate authority of a false internet, which signs for every host. Its key exists in memory only.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
    /// The key of every host.
    key: KeyPair,
}

impl Authority {
    pub(super) fn new() -> io::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Local Root");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(io::Error::other)?);
        let issuer = issuer.map_err(io::Error::other)?;
        Ok(Self { pem: issuer.pem(), issuer, key: KeyPair::generate().map_err(io::Error::other)? })
    }

    pub(super) fn certificate(&self) -> &str {
        &self.pem
    }

    /// Returns a TLS configuration that proves to be this host. Only HTTP/1.1 is spoken inside.
    pub(super) fn proves(&self, host: &str) -> io::Result<Arc<ServerConfig>> {
        let params = CertificateParams::new(vec![host.to_owned()]).map_err(io::Error::other)?;
        let certificate = params.signed_by(&self.key, &self.issuer).map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
