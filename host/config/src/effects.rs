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
    /// depends only on the configuration. What opens files, hosts and secrets comes after the rest, and what takes a
    /// protection away comes last. No line contains the value of a variable.
    #[doc(hidden)]
    #[must_use]
    pub fn effects(&self) -> Vec<String> {
        let mut lines = Lines::default();
        lines.add("broker", format_args!("keeps ledger, secrets and what was accepted in {}", path(&self.data_dir)));
        self.ledger_effects(&mut lines);
        self.serve_effects(&mut lines);
        if let Some(webhook) = &self.questions.webhook {
            let what = if webhook.arguments { "questions with the arguments of calls" } else { "questions" };
            lines.opens("broker", format_args!("sends {what} to {}", webhook.url));
        }
        for (name, token) in &self.serve.people {
            lines.token("serve", format_args!("lets {name} answer questions over HTTP"), token);
        }
        if let Some(telemetry) = &self.telemetry {
            lines.opens("broker", format_args!("sends spans to {}", telemetry.otlp));
            lines.values("broker", "sends the collector", &telemetry.headers);
        }
        self.profile_effects(&mut lines);
        self.plugin_effects(&mut lines);
        for source in self.sources.values() {
            of_source(source, &mut lines);
        }
        let Lines { ordinary, opening, weakening } = lines;
        [ordinary, opening, weakening].concat()
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
                    lines.opens(
                        "broker",
                        format_args!("sends the records of the ledger to {}", plain_shell_word(&address.to_string())),
                    );
                }
                RemoteSinkConfig::Otlp(collector) => {
                    lines.opens("broker", format_args!("sends the ends of calls to {}", collector.otlp));
                    lines.values("broker", "sends that collector the header", &collector.headers);
                }
            }
        }
    }

    fn serve_effects(&self, lines: &mut Lines) {
        let serve = &self.serve;
        let listens = format!("listens on {} for agents with its token, unless over stdio", serve.listen);
        if serve.listen.ip().is_loopback() {
            lines.add("serve", listens);
        } else {
            lines.opens("serve", listens);
        }
        if serve.dangerous_no_token {
            lines.weakens("serve", "lets everybody on this machine call, without a token");
        }
        if let Some(ConfigValue::Plain(_)) = serve.token {
            lines.weakens("serve", "takes a token that stands in the file");
        }
        for (name, caller) in &serve.callers {
            lines.token("serve", format_args!("lets {name} call under the profile {}", caller.profile), &caller.token);
        }
        if let Some(ConfigValue::Plain(_)) = serve.metrics_token {
            lines.weakens("serve", "shows metrics for a token that stands in the file");
        }
        if let Some(jwt) = &serve.jwt {
            lines.opens("serve", format_args!("takes tokens of {}, whose keys are at {}", jwt.issuer, jwt.keys));
        }
        for more in serve.hosts.iter().chain(&serve.origins) {
            lines.opens("serve", format_args!("answers requests for {more}"));
        }
    }

    fn profile_effects(&self, lines: &mut Lines) {
        for (name, profile) in &self.profiles {
            if profile.approve == Approve::Never {
                lines.weakens(&format!("profile {name}"), "never asks before a risky call");
            }
            if profile.approve == Approve::Risky && profile.destructive == Destructive::Ask {
                lines.weakens(
                    &format!("profile {name}"),
                    "shows tools that their source calls destructive, and asks before a call",
                );
            }
            if profile.sampling {
                lines.opens(&format!("profile {name}"), "lets sources use the agent's model");
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
            lines.sandboxed("broker", format_args!("runs the {kind} plugin {plugin}"), grant);
            if settings.as_object().is_some_and(|settings| !settings.is_empty()) {
                lines.add("broker", format_args!("gives the {kind} plugin {plugin} the settings {settings}"));
            }
            if *shadow {
                lines.weakens("broker", format_args!("only records what the {kind} plugin {plugin} decides"));
            }
            if !on.is_empty() && !on.contains(&Phase::Call) {
                let phases: Vec<_> = on.iter().map(|phase| phase.as_str()).collect();
                let phases = phases.join(" and ");
                lines.weakens(
                    "broker",
                    format_args!("asks the {kind} plugin {plugin} on {phases}, and not before a call"),
                );
            }
            if let Some(file) = file {
                lines.opens("broker", format_args!("writes the records of {plugin} to {}", path(file)));
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
            lines.opens(&subject, format_args!("reaches {url}"));
            if *dangerous_allow_private {
                lines.weakens(&subject, "may be at a private address");
            }
            lines.values(&subject, "is sent the header", headers);
            if let Some(issuer) = &oauth.issuer {
                lines.opens(&subject, format_args!("lets you log in at {issuer}"));
            }
            if let Some(OAuthClient { id: client, secret: Some(secret) }) = &oauth.client {
                let secret = BTreeMap::from([(client.clone(), secret.clone())]);
                lines.values(&subject, "gives its login server the secret of the client", &secret);
            }
        }
        Endpoint::Component { component, settings, grant, env, args } => {
            lines.sandboxed(&subject, format_args!("runs the component {component}"), grant);
            if settings.as_object().is_some_and(|settings| !settings.is_empty()) {
                lines.add(&subject, format_args!("is given the settings {settings}"));
            }
            if !args.is_empty() {
                lines.add(&subject, format_args!("is given the arguments {args:?}"));
            }
            lines.values(&subject, "is given the variable", env);
        }
        Endpoint::Native { name } => {
            lines.weakens(&subject, format_args!("is `{name}` of the program itself, in no cell"));
        }
    }
    let CellConfig { read, write, network, dangerous_allow_reduced, dangerous_allow_private, .. } = &source.cell;
    for folder in read {
        lines.opens(&subject, format_args!("reads {}", path(folder)));
    }
    for folder in write {
        lines.opens(&subject, format_args!("reads and writes {}", path(folder)));
    }
    for host in network {
        lines.opens(&subject, format_args!("reaches {host}"));
    }
    if *dangerous_allow_reduced {
        lines.weakens(&subject, "may run in a reduced cell");
    }
    if *dangerous_allow_private && !network.is_empty() {
        lines.weakens(&subject, "may reach private addresses");
    }
    of_messages(source, &subject, lines);
}

/// Adds the effects on messages from and to the source.
fn of_messages(source: &SourceConfig, subject: &str, lines: &mut Lines) {
    if source.trust_annotations {
        lines.weakens(subject, "is believed when it calls its own tools harmless");
    }
    match source.scan {
        ScanMode::Off => {
            lines.weakens(subject, "is shown as it is: the broker scans nothing that it says of its tools");
        }
        ScanMode::Warn => lines.weakens(subject, "is shown whatever the scan of its tools finds"),
        ScanMode::Quarantine => {}
    }
    if let Some(labels) = &source.labels {
        let labels = if labels.is_empty() { "nothing".to_owned() } else { labels.join(" ") };
        lines.weakens(subject, format_args!("has its results labelled as {labels}, whatever its cell allows"));
    }
    for key in &source.context {
        lines.add(subject, format_args!("is sent {key} of what the agent says beside a call"));
    }
}

/// The effects that were found, by how closely a person should look at them.
#[derive(Default)]
struct Lines {
    ordinary: Vec<String>,
    /// Those that give files, hosts, secrets or records to somebody.
    opening: Vec<String>,
    /// Those that take a protection away.
    weakening: Vec<String>,
}

impl Lines {
    fn add(&mut self, subject: &str, what: impl std::fmt::Display) {
        self.ordinary.push(line(subject, what));
    }

    fn opens(&mut self, subject: &str, what: impl std::fmt::Display) {
        self.opening.push(line(subject, what));
    }

    fn weakens(&mut self, subject: &str, what: impl std::fmt::Display) {
        self.weakening.push(line(subject, what));
    }

    /// Adds code that runs in a sandbox, with the capabilities that it is granted.
    fn sandboxed(&mut self, subject: &str, what: impl std::fmt::Display, grant: &[String]) {
        match grant {
            [] => self.add(subject, format_args!("{what}, sandboxed")),
            grant => self.opens(subject, format_args!("{what}, sandboxed, with {}", grant.join(" "))),
        }
    }

    /// Adds what a token lets somebody do. Anybody who can read the file has a token that stands in it.
    fn token(&mut self, subject: &str, what: impl std::fmt::Display, token: &ConfigValue) {
        match token {
            ConfigValue::Plain(_) => {
                self.weakens(subject, format_args!("{what}, with a token that stands in the file"));
            }
            ConfigValue::Secret(_) => self.opens(subject, what),
        }
    }

    /// Adds names and the secrets that they refer to. Values that are written in the file are not shown.
    fn values(&mut self, subject: &str, what: &str, values: &BTreeMap<String, ConfigValue>) {
        for (name, value) in values {
            match value {
                ConfigValue::Plain(_) => self.add(subject, format_args!("{what} {name}")),
                ConfigValue::Secret(secret) => self.opens(subject, format_args!("{what} {name}, your secret {secret}")),
            }
        }
    }
}

fn line(subject: &str, what: impl std::fmt::Display) -> String {
    escape_hidden(&format!("{subject}: {what}")).into_owned()
}

fn path(path: &Path) -> String {
    plain_shell_word(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
