//! Lists what a configuration does on the machine, for the person who decides whether to trust it.

use std::collections::BTreeMap;
use std::path::Path;

use portcullis_core::call::Phase;
use portcullis_core::escape::{escape_hidden, plain_shell_word};

use super::{
    Approve, CellConfig, Config, ConfigValue, Destructive, Endpoint, OAuthClient, PluginConfig, RemoteSinkConfig,
    ScanMode, SourceConfig, WitnessConfig,
};

/// Returns the switch by which a command names a data folder, with a blank before it.
#[must_use]
pub fn data_dir_switch(folder: &Path) -> String {
    format!(" --data-dir {}", escape_hidden(&path(folder)))
}

impl Config {
    /// Returns the switch by which a command names the data folder, with a blank before it. It is empty if the
    /// configuration is a file, because the command finds that.
    #[doc(hidden)]
    #[must_use]
    pub fn data_dir_switch(&self) -> String {
        if self.file.is_some() { String::new() } else { data_dir_switch(&self.data_dir) }
    }

    /// Returns what the configuration starts, reaches, reads and writes: one line each, safe to show, in an order that
    /// depends only on the configuration. No line contains the value of a variable.
    #[doc(hidden)]
    #[must_use]
    pub fn effects(&self) -> Vec<String> {
        let mut lines = Lines::default();
        lines.add("broker", format_args!("keeps ledger, secrets and what was accepted in {}", path(&self.data_dir)));
        self.ledger_effects(&mut lines);
        self.serve_effects(&mut lines);
        if let Some(webhook) = &self.questions.webhook {
            let what = if webhook.arguments { "questions with the arguments of calls" } else { "questions" };
            lines.add("broker", format_args!("sends {what} to {}", webhook.url));
        }
        for (name, token) in &self.serve.people {
            lines.add("serve", format_args!("lets {name} answer questions over HTTP{}", written(token)));
        }
        if let Some(telemetry) = &self.telemetry {
            lines.add("broker", format_args!("sends spans to {}", telemetry.otlp));
            lines.values("broker", "sends the collector", &telemetry.headers);
        }
        self.profile_effects(&mut lines);
        self.plugin_effects(&mut lines);
        for source in self.sources.values() {
            of_source(source, &mut lines);
        }
        lines.0
    }

    fn ledger_effects(&self, lines: &mut Lines) {
        if let Some(retention) = self.ledger.retention {
            let days = retention.as_secs() / (24 * 60 * 60);
            lines.add("broker", format_args!("removes records of the ledger that are older than {days} days"));
        }
        for recipient in &self.ledger.recipients {
            lines.add("broker", format_args!("seals arguments and results in the ledger for {recipient}"));
        }
        for witness in &self.ledger.witnesses {
            match witness {
                WitnessConfig::File(file) => {
                    lines.add("broker", format_args!("writes checkpoints of the ledger to {}", path(file)));
                }
                WitnessConfig::Server(url) => {
                    lines.add("broker", format_args!("sends checkpoints of the ledger to {url}"))
                }
                WitnessConfig::Git(repository) => {
                    lines.add("broker", format_args!("commits checkpoints of the ledger in {}", path(repository)));
                }
                WitnessConfig::Syslog(address) => {
                    lines.add(
                        "broker",
                        format_args!("sends checkpoints of the ledger to {}", plain_shell_word(&address.to_string())),
                    );
                }
            }
        }
        for sink in &self.remote_sinks {
            match sink {
                RemoteSinkConfig::Syslog(address) => {
                    lines.add(
                        "broker",
                        format_args!("sends the records of the ledger to {}", plain_shell_word(&address.to_string())),
                    );
                }
                RemoteSinkConfig::Otlp(collector) => {
                    lines.add("broker", format_args!("sends the ends of calls to {}", collector.otlp));
                    lines.values("broker", "sends that collector the header", &collector.headers);
                }
            }
        }
    }

    fn serve_effects(&self, lines: &mut Lines) {
        let serve = &self.serve;
        lines.add("serve", format_args!("listens on {} for agents with its token, unless over stdio", serve.listen));
        if serve.dangerous_no_token {
            lines.add("serve", "lets everybody on this machine call, without a token");
        }
        if let Some(ConfigValue::Plain(_)) = serve.token {
            lines.add("serve", "takes a token that stands in the file");
        }
        for (name, caller) in &serve.callers {
            let token = written(&caller.token);
            lines.add("serve", format_args!("lets {name} call under the profile {}{token}", caller.profile));
        }
        if let Some(ConfigValue::Plain(_)) = serve.metrics_token {
            lines.add("serve", "shows metrics for a token that stands in the file");
        }
        if let Some(jwt) = &serve.jwt {
            lines.add("serve", format_args!("takes tokens of {}, whose keys are at {}", jwt.issuer, jwt.keys));
        }
        for more in serve.hosts.iter().chain(&serve.origins) {
            lines.add("serve", format_args!("answers requests for {more}"));
        }
    }

    fn profile_effects(&self, lines: &mut Lines) {
        for (name, profile) in &self.profiles {
            if profile.approve == Approve::Never {
                lines.add(&format!("profile {name}"), "never asks before a risky call");
            }
            if profile.approve == Approve::Risky && profile.destructive == Destructive::Ask {
                lines.add(
                    &format!("profile {name}"),
                    "shows tools that their source calls destructive, and asks before a call",
                );
            }
            if profile.sampling {
                lines.add(&format!("profile {name}"), "lets sources use the agent's model");
            }
        }
    }

    fn plugin_effects(&self, lines: &mut Lines) {
        let kinds = [
            ("policy", &self.policies),
            ("transform", &self.transforms),
            ("approval", &self.approvals),
            ("sink", &self.sinks),
        ];
        for file in &self.plugin_keys {
            lines.add(
                "broker",
                format_args!("loads plugins that the key in {} has signed, and no unsigned ones", path(file)),
            );
        }
        for (kind, PluginConfig { plugin, settings, file, grant, on, shadow }) in
            kinds.iter().flat_map(|(kind, plugins)| plugins.iter().map(move |plugin| (*kind, plugin)))
        {
            lines.add("broker", format_args!("runs the {kind} plugin {plugin}, sandboxed{}", granted(grant)));
            if settings.as_object().is_some_and(|settings| !settings.is_empty()) {
                lines.add("broker", format_args!("gives the {kind} plugin {plugin} the settings {settings}"));
            }
            if *shadow {
                lines.add("broker", format_args!("only records what the {kind} plugin {plugin} decides"));
            }
            if !on.is_empty() && !on.contains(&Phase::Call) {
                let phases: Vec<_> = on.iter().map(|phase| phase.as_str()).collect();
                let phases = phases.join(" and ");
                lines.add("broker", format_args!("asks the {kind} plugin {plugin} on {phases}, and not before a call"));
            }
            if let Some(file) = file {
                lines.add("broker", format_args!("writes the records of {plugin} to {}", path(file)));
            }
        }
    }
}

fn of_source(source: &SourceConfig, lines: &mut Lines) {
    let subject = format!("source {}", source.name);
    match &source.endpoint {
        Endpoint::Command { argv, cwd, env } => {
            let words: Vec<_> = argv.iter().map(|word| plain_shell_word(word)).collect();
            lines.add(&subject, format_args!("starts {}", words.join(" ")));
            if let Some(cwd) = cwd {
                lines.add(&subject, format_args!("starts in {}", path(cwd)));
            }
            lines.values(&subject, "is given the variable", env);
        }
        Endpoint::Url { url, headers, oauth, dangerous_allow_private, .. } => {
            lines.add(&subject, format_args!("reaches {url}"));
            if *dangerous_allow_private {
                lines.add(&subject, "may be at a private address");
            }
            lines.values(&subject, "is sent the header", headers);
            if let Some(issuer) = &oauth.issuer {
                lines.add(&subject, format_args!("lets you log in at {issuer}"));
            }
            if let Some(OAuthClient { id: client, secret: Some(secret) }) = &oauth.client {
                let secret = BTreeMap::from([(client.clone(), secret.clone())]);
                lines.values(&subject, "gives its login server the secret of the client", &secret);
            }
        }
        Endpoint::Component { component, settings, grant, env, args } => {
            lines.add(&subject, format_args!("runs the component {component}, sandboxed{}", granted(grant)));
            if settings.as_object().is_some_and(|settings| !settings.is_empty()) {
                lines.add(&subject, format_args!("is given the settings {settings}"));
            }
            if !args.is_empty() {
                lines.add(&subject, format_args!("is given the arguments {args:?}"));
            }
            lines.values(&subject, "is given the variable", env);
        }
        Endpoint::Native { name } => lines.add(&subject, format_args!("is `{name}` of the program itself, in no cell")),
    }
    let CellConfig { read, write, network, dangerous_allow_reduced, dangerous_allow_private, .. } = &source.cell;
    for folder in read {
        lines.add(&subject, format_args!("reads {}", path(folder)));
    }
    for folder in write {
        lines.add(&subject, format_args!("reads and writes {}", path(folder)));
    }
    for host in network {
        lines.add(&subject, format_args!("reaches {host}"));
    }
    if *dangerous_allow_reduced {
        lines.add(&subject, "may run in a reduced cell");
    }
    if *dangerous_allow_private && !network.is_empty() {
        lines.add(&subject, "may reach private addresses");
    }
    of_messages(source, &subject, lines);
}

/// Adds the effects on messages from and to the source.
fn of_messages(source: &SourceConfig, subject: &str, lines: &mut Lines) {
    if source.trust_annotations {
        lines.add(subject, "is believed when it calls its own tools harmless");
    }
    match source.scan {
        ScanMode::Off => lines.add(subject, "is shown as it is: the broker scans nothing that it says of its tools"),
        ScanMode::Warn => lines.add(subject, "is shown whatever the scan of its tools finds"),
        ScanMode::Quarantine => {}
    }
    if let Some(labels) = &source.labels {
        let labels = if labels.is_empty() { "nothing".to_owned() } else { labels.join(" ") };
        lines.add(subject, format_args!("has its results labelled as {labels}, whatever its cell allows"));
    }
    for key in &source.context {
        lines.add(subject, format_args!("is sent {key} of what the agent says beside a call"));
    }
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add(&mut self, subject: &str, what: impl std::fmt::Display) {
        self.0.push(escape_hidden(&format!("{subject}: {what}")).into_owned());
    }

    /// Adds names and the secrets that they refer to. Values that are written in the file are not shown.
    fn values(&mut self, subject: &str, what: &str, values: &BTreeMap<String, ConfigValue>) {
        for (name, value) in values {
            match value {
                ConfigValue::Plain(_) => self.add(subject, format_args!("{what} {name}")),
                ConfigValue::Secret(secret) => self.add(subject, format_args!("{what} {name}, your secret {secret}")),
            }
        }
    }
}

/// Returns the end of a line about a token that anybody who can read the file has.
fn written(token: &ConfigValue) -> &'static str {
    match token {
        ConfigValue::Plain(_) => ", with a token that stands in the file",
        ConfigValue::Secret(_) => "",
    }
}

fn path(path: &Path) -> String {
    plain_shell_word(&path.to_string_lossy())
}

fn granted(grant: &[String]) -> String {
    if grant.is_empty() { String::new() } else { format!(", with {}", grant.join(" ")) }
}

#[cfg(test)]
mod tests;
