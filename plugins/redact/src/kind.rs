//! The kinds of values that the plugin knows, by the names that `detect` takes and that placeholders show.

use serde::Deserialize;
use serde::de::{Deserializer, Error};

macro_rules! kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// A kind of value that the plugin knows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// The kinds, in the order of their numbers.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Returns the name in settings and placeholders.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    Email = "email",
    Phone = "phone",
    CreditCard = "credit-card",
    Iban = "iban",
    Ipv4 = "ipv4",
    Ipv6 = "ipv6",
    // National identifiers.
    BrCnpj = "br-cnpj",
    BrCpf = "br-cpf",
    ChAhv = "ch-ahv",
    CnId = "cn-id",
    DeTaxId = "de-tax-id",
    EsDni = "es-dni",
    FiHetu = "fi-hetu",
    FrNir = "fr-nir",
    InAadhaar = "in-aadhaar",
    ItCodiceFiscale = "it-codice-fiscale",
    MxCurp = "mx-curp",
    NlBsn = "nl-bsn",
    PlPesel = "pl-pesel",
    SePersonnummer = "se-personnummer",
    UkNhs = "uk-nhs",
    UkNino = "uk-nino",
    UsSsn = "us-ssn",
    // Secrets of no particular service.
    PrivateKey = "private-key",
    Jwt = "jwt",
    UrlPassword = "url-password",
    Secret = "secret",
    // Keys of services.
    AdafruitKey = "adafruit-key",
    AgeKey = "age-key",
    AirtableToken = "airtable-token",
    AlibabaKey = "alibaba-key",
    AnthropicKey = "anthropic-key",
    ArtifactoryKey = "artifactory-key",
    AtlassianToken = "atlassian-token",
    AwsKey = "aws-key",
    AzureKey = "azure-key",
    BrevoKey = "brevo-key",
    BuildkiteToken = "buildkite-token",
    CircleciToken = "circleci-token",
    ClojarsToken = "clojars-token",
    CloudflareKey = "cloudflare-key",
    ContentfulToken = "contentful-token",
    CratesToken = "crates-token",
    DatabricksToken = "databricks-token",
    DatadogKey = "datadog-key",
    DigitaloceanToken = "digitalocean-token",
    DiscordToken = "discord-token",
    DockerToken = "docker-token",
    DopplerToken = "doppler-token",
    DropboxToken = "dropbox-token",
    DuffelToken = "duffel-token",
    EasypostKey = "easypost-key",
    FacebookToken = "facebook-token",
    FigmaToken = "figma-token",
    FlyToken = "fly-token",
    GithubToken = "github-token",
    GitlabToken = "gitlab-token",
    GoogleKey = "google-key",
    GoogleOauth = "google-oauth",
    GrafanaToken = "grafana-token",
    GroqKey = "groq-key",
    HerokuKey = "heroku-key",
    HubspotToken = "hubspot-token",
    HuggingfaceToken = "huggingface-token",
    LangsmithKey = "langsmith-key",
    LinearKey = "linear-key",
    MailchimpKey = "mailchimp-key",
    MailersendToken = "mailersend-token",
    MailgunKey = "mailgun-key",
    MapboxToken = "mapbox-token",
    NetlifyToken = "netlify-token",
    NewrelicKey = "newrelic-key",
    NotionToken = "notion-token",
    NpmToken = "npm-token",
    NugetKey = "nuget-key",
    OnepasswordToken = "onepassword-token",
    OpenaiKey = "openai-key",
    OpenrouterKey = "openrouter-key",
    PerplexityKey = "perplexity-key",
    PlaidToken = "plaid-token",
    PlanetscaleToken = "planetscale-token",
    PostmanKey = "postman-key",
    PulumiToken = "pulumi-token",
    PypiToken = "pypi-token",
    ReplicateToken = "replicate-token",
    RubygemsKey = "rubygems-key",
    SendgridKey = "sendgrid-key",
    SentryToken = "sentry-token",
    ShippoToken = "shippo-token",
    ShopifyToken = "shopify-token",
    SlackToken = "slack-token",
    SlackWebhook = "slack-webhook",
    SonarToken = "sonar-token",
    SquareToken = "square-token",
    StripeKey = "stripe-key",
    SupabaseKey = "supabase-key",
    TailscaleKey = "tailscale-key",
    TelegramToken = "telegram-token",
    TerraformToken = "terraform-token",
    TwilioKey = "twilio-key",
    VaultToken = "vault-token",
    XaiKey = "xai-key",
}

/// The kinds that are searched for only where `detect` names them: a phone number is often an identifier of something
/// else, and a version can look like an address.
const OPT_IN: [Kind; 3] = [Kind::Phone, Kind::Ipv4, Kind::Ipv6];

/// The word in `detect` for all kinds that need no mention.
const DEFAULT: &str = "default";

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kinds(u128);

impl Kinds {
    const NONE: Self = Self(0);

    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 >> (kind as u8) & 1 == 1
    }

    /// Reports whether there are no kinds in the set.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    fn and(self, kind: Kind) -> Self {
        Self(self.0 | 1 << (kind as u8))
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Kind::ALL.iter().filter(|kind| !OPT_IN.contains(kind)).fold(Self::NONE, |kinds, kind| kinds.and(*kind))
    }
}

/// One item of `detect`.
struct Choice(Kinds);

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == DEFAULT {
            return Ok(Self(Kinds::default()));
        }
        if let Some(kind) = Kind::ALL.iter().find(|kind| kind.name() == name) {
            return Ok(Self(Kinds::NONE.and(*kind)));
        }
        let near: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).filter(|known| resembles(known, &name)).collect();
        let hint = match near.as_slice() {
            [] => "use `default`, or kinds from the page about redaction, such as `email`; what is not there can be a pattern".into(),
            near => format!("do you mean `{}`?", near.join("` or `")),
        };
        Err(D::Error::custom(format!("{name:?} is not a kind that is known: {hint}")))
    }
}

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let choices = Vec::<Choice>::deserialize(deserializer)?;
        Ok(choices.into_iter().fold(Self::NONE, |all, Choice(kinds)| Self(all.0 | kinds.0)))
    }
}

/// Reports whether two names share a part that has a meaning, as `stripe-token` and `stripe-key` do.
fn resembles(known: &str, given: &str) -> bool {
    let says = |part: &&str| part.len() > 3 && !["token", "number", "webhook"].contains(part);
    given.to_ascii_lowercase().split(['-', '_', ' ']).filter(says).any(|part| known.contains(part))
}
