//! Canaries: secrets that open nothing, with values that exist nowhere else. A source that knows one has read it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;

/// The place of a canary: a file or an environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanaryPlace {
    /// A file of the false home, by its path in it.
    File(&'static str),
    /// An environment variable.
    Variable(&'static str),
}

/// One canary.
#[derive(Debug, Clone)]
pub struct Canary {
    /// The place of the canary.
    pub place: CanaryPlace,
    /// Its random part, which identifies it wherever it appears.
    pub secret: String,
    /// The whole value of the variable, or the content of the file.
    pub content: String,
    kind: &'static Kind,
}

/// A kind of secret that many people have.
#[derive(Debug)]
struct Kind {
    place: CanaryPlace,
    /// Its content, in which `@` marks the random part.
    form: &'static str,
    /// Words in a description that show that a server deals with it.
    topics: &'static [&'static str],
    /// The hosts that it is meant for.
    hosts: &'static [&'static str],
}

const fn file(
    path: &'static str,
    form: &'static str,
    topics: &'static [&'static str],
    hosts: &'static [&'static str],
) -> Kind {
    Kind { place: CanaryPlace::File(path), form, topics, hosts }
}

const fn variable(
    name: &'static str,
    form: &'static str,
    topics: &'static [&'static str],
    hosts: &'static [&'static str],
) -> Kind {
    Kind { place: CanaryPlace::Variable(name), form, topics, hosts }
}

const AWS: &[&str] = &["aws", "amazon", "s3", "dynamodb", "lambda", "bedrock"];
const GITHUB: &[&str] = &["github", "gh", "git", "pull", "repository"];

static KINDS: [Kind; 13] = [
    file(
        ".ssh/id_ed25519",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n@\n-----END OPENSSH PRIVATE KEY-----\n",
        &["ssh", "sftp", "scp"],
        &[],
    ),
    file(
        ".aws/credentials",
        "[default]\naws_access_key_id = AKIAQ7XH2RZJ5N3KLM4P\naws_secret_access_key = @\n",
        AWS,
        // Only signatures that are made with it are ever sent, and anybody may have a name below that of the service.
        &[],
    ),
    file(
        ".config/gh/hosts.yml",
        "github.com:\n    user: alex\n    oauth_token: gho_@\n    git_protocol: https\n",
        GITHUB,
        &["github.com", "githubusercontent.com"],
    ),
    file(".env", "NODE_ENV=production\nSTRIPE_SECRET_KEY=sk_live_@\n", &["env", "dotenv", "stripe"], &["stripe.com"]),
    file(".git-credentials", "https://alex:@@github.com\n", GITHUB, &["github.com"]),
    file(
        ".kube/config",
        "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: @\n",
        &["kubernetes", "kube", "k8s", "kubectl"],
        &[],
    ),
    file(
        ".config/Claude/claude_desktop_config.json",
        "{\"mcpServers\":{\"mail\":{\"command\":\"npx\",\"args\":[\"mail-mcp\"],\"env\":{\"MAIL_TOKEN\":\"@\"}}}}\n",
        &["claude"],
        &[],
    ),
    file(
        ".config/google-chrome/Default/Login Data",
        "SQLite format 3\nlogins https://bank.example alex @\n",
        &["chrome", "browser", "password"],
        &[],
    ),
    file(".bash_history", "ls\nexport DEPLOY_KEY=@\ngit push\n", &["history", "shell"], &[]),
    variable("AWS_SECRET_ACCESS_KEY", "@", AWS, &[]),
    variable("GITHUB_TOKEN", "ghp_@", GITHUB, &["github.com", "githubusercontent.com"]),
    variable("OPENAI_API_KEY", "sk-proj-@", &["openai", "gpt"], &["openai.com"]),
    variable(
        "DATABASE_URL",
        "postgres://app:@@db.internal:5432/app",
        &["database", "postgres", "sql", "db"],
        &["db.internal"],
    ),
];

/// The length of the random part, in characters.
const SECRET_CHARS: usize = 40;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789xz";

impl Canary {
    /// Makes one canary of each kind.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn make_all() -> io::Result<Vec<Self>> {
        KINDS.iter().map(Self::make).collect()
    }

    fn make(kind: &'static Kind) -> io::Result<Self> {
        let mut random = [0; SECRET_CHARS];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let letter = |byte: &u8| ALPHABET.get(usize::from(byte % 64)).copied().map_or('A', char::from);
        let secret: String = random.iter().map(letter).collect();
        Ok(Self { place: kind.place, content: kind.form.replacen('@', &secret, 1), secret, kind })
    }

    /// Returns its name as people know it: `~/.ssh/id_ed25519`, `GITHUB_TOKEN`.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = String::new();
        // Writing to a string does not fail.
        let _ = match self.place {
            CanaryPlace::File(path) => write!(name, "~/{path}"),
            CanaryPlace::Variable(variable) => write!(name, "{variable}"),
        };
        name
    }

    /// Reports whether a text says that the server deals with this kind of secret.
    #[must_use]
    pub fn is_topic_of(&self, text: &str) -> bool {
        let lower = text.to_ascii_lowercase();
        let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| self.kind.topics.contains(&word))
    }

    /// Reports whether one of the words with which a server describes itself says so, too.
    pub(crate) fn is_topic_among(&self, words: &HashSet<String>) -> bool {
        self.kind.topics.iter().any(|topic| words.contains(*topic))
    }

    /// Reports whether the secret is meant for this host.
    #[must_use]
    pub fn is_meant_for(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.kind
            .hosts
            .iter()
            .any(|known| host == *known || host.strip_suffix(known).is_some_and(|rest| rest.ends_with('.')))
    }

    /// Reports whether programs read it without meaning the secret: `.env` is read by a common library at every start.
    #[must_use]
    pub fn is_read_by_habit(&self) -> bool {
        matches!(self.place, CanaryPlace::File(".env"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_canary_holds_its_own_secret() {
        let (some, others) = (Canary::make_all().unwrap(), Canary::make_all().unwrap());
        for (one, other) in some.iter().zip(&others) {
            assert!(one.content.contains(&one.secret) && one.secret != other.secret, "{one:?}");
        }
        let token = some.iter().find(|canary| canary.name() == "GITHUB_TOKEN").unwrap();
        assert!(token.is_meant_for("api.github.com") && !token.is_meant_for("evil-github.com"));
        assert!(token.is_topic_of("Searches GitHub.") && !token.is_topic_of("Adds two numbers."));
    }
}
