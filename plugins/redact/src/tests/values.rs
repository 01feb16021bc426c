//! Values that have the form of real ones and belong to nobody, made when a test runs: nothing in the repository looks like
//! a secret. Check digits are computed here by their definitions, not by the detectors.

/// A generator of numbers with a seed (xorshift).
pub(super) struct Random(u64);

/// The forms of keys, as the services show them: `<A36>` means 36 letters and digits. See [`Random::filled`].
pub(super) const KEYS: [(&str, &[&str]); 77] = [
    ("adafruit-key", &["aio_<A28>"]),
    ("age-key", &["AGE-SECRET-KEY-1<U58>"]),
    ("airtable-token", &["pat<A14>.<h64>"]),
    ("alibaba-key", &["LTAI<A20>"]),
    ("anthropic-key", &["sk-ant-api03-<W93>AA", "sk-ant-admin01-<W93>AA"]),
    ("artifactory-key", &["AKCp<A69>"]),
    ("atlassian-token", &["ATATT3xFfGF0<W170>=<H8>", "ATBB<A32>"]),
    ("aws-key", &["AKIA<U16>", "ASIA<U16>"]),
    ("azure-key", &["<A3>8Q~<W34>", "<A3>7Q~<W31>"]),
    ("brevo-key", &["xkeysib-<h64>-<A16>"]),
    ("buildkite-token", &["bkua_<h40>"]),
    ("circleci-token", &["CCIPAT_<A22>_<h40>"]),
    ("clojars-token", &["CLOJARS_<a60>"]),
    ("cloudflare-key", &["v1.0-<h24>-<h146>"]),
    ("contentful-token", &["CFPAT-<W43>"]),
    ("crates-token", &["cio<A32>"]),
    ("databricks-token", &["dapi<h32>", "dapi<h32>-2"]),
    ("datadog-key", &["ddapp_<A34>"]),
    ("digitalocean-token", &["dop_v1_<h64>", "doo_v1_<h64>", "dor_v1_<h64>"]),
    ("discord-token", &["MT<A22>.G<A5>.<W38>", "Nz<A24>.X<A5>.<W27>"]),
    ("docker-token", &["dckr_pat_<W27>"]),
    ("doppler-token", &["dp.pt.<A43>", "dp.st.dev.<A43>"]),
    ("dropbox-token", &["sl.<W140>", "sl.u.<W160>"]),
    ("duffel-token", &["duffel_live_<W43>", "duffel_test_<W43>"]),
    ("easypost-key", &["EZAK<A54>"]),
    ("facebook-token", &["EAAC<A180>"]),
    ("figma-token", &["figd_<W40>"]),
    ("fly-token", &["fo1_<W43>", "fm2_lJPE<6:120>"]),
    ("github-token", &["ghp_<A36>", "gho_<A36>", "ghs_<A36>", "github_pat_<A22>_<A59>"]),
    ("gitlab-token", &["glpat-<W20>", "glrt-<W20>", "glptt-<h40>"]),
    ("google-key", &["AIzaSy<W33>"]),
    ("google-oauth", &["GOCSPX-<W28>"]),
    ("grafana-token", &["glsa_<A32>_<h8>", "glc_<6:100>"]),
    ("groq-key", &["gsk_<A52>"]),
    ("heroku-key", &["HRKU-AA<W58>", "HRKU-<h8>-<h4>-<h4>-<h4>-<h12>"]),
    ("hubspot-token", &["pat-na1-<h8>-<h4>-<h4>-<h4>-<h12>"]),
    ("huggingface-token", &["hf_<A34>"]),
    ("langsmith-key", &["lsv2_pt_<h32>_<h10>"]),
    ("linear-key", &["lin_api_<A40>"]),
    ("mailchimp-key", &["<h32>-us12", "<h32>-us7"]),
    ("mailersend-token", &["mlsn.<h64>"]),
    ("mailgun-key", &["key-<h32>"]),
    ("mapbox-token", &["sk.eyJ1Ijoi<A70>.<W22>"]),
    ("netlify-token", &["nfp_<A36>"]),
    ("newrelic-key", &["NRAK-<U27>", "<h36>NRAL"]),
    ("notion-token", &["ntn_<A46>", "secret_<A43>"]),
    ("npm-token", &["npm_<A36>"]),
    ("nuget-key", &["oy2<a43>"]),
    ("onepassword-token", &["ops_eyJ<A260>"]),
    ("openai-key", &["sk-<A20>T3BlbkFJ<A20>", "sk-proj-<W120>", "sk-svcacct-<W120>"]),
    ("openrouter-key", &["sk-or-v1-<h64>"]),
    ("perplexity-key", &["pplx-<A48>"]),
    ("plaid-token", &["access-sandbox-<h8>-<h4>-<h4>-<h4>-<h12>"]),
    ("planetscale-token", &["pscale_tkn_<W43>", "pscale_pw_<W43>"]),
    ("postman-key", &["PMAK-<h24>-<h34>"]),
    ("pulumi-token", &["pul-<h40>"]),
    ("pypi-token", &["pypi-AgEIcHlwaS5vcmc<W150>"]),
    ("replicate-token", &["r8_<A37>"]),
    ("rubygems-key", &["rubygems_<h48>"]),
    ("sendgrid-key", &["SG.<W22>.<W43>"]),
    ("sentry-token", &["sntryu_<h64>", "sntrys_eyJ<6:180>_<6:43>"]),
    ("shippo-token", &["shippo_live_<h40>"]),
    ("shopify-token", &["shpat_<h32>", "shpss_<h32>"]),
    ("slack-token", &["xoxb-<d12>-<d12>-<A24>", "xoxp-<d11>-<d12>-<d12>-<h32>", "xapp-1-A<U10>-<d13>-<h64>"]),
    ("slack-webhook", &["hooks.slack.com/services/T<U8>/B<U10>/<A24>"]),
    ("sonar-token", &["sqp_<h40>", "squ_<h40>"]),
    ("square-token", &["sq0atp-<W22>", "sq0csp-<W43>"]),
    ("stripe-key", &["sk_live_<A24>", "rk_live_<A99>", "sk_test_<A99>"]),
    ("supabase-key", &["sbp_<h40>", "sb_secret_<W31>"]),
    ("tailscale-key", &["tskey-auth-<A17>-<A32>"]),
    ("telegram-token", &["<d10>:AA<W33>"]),
    ("terraform-token", &["<A14>.atlasv1.<W67>"]),
    ("twilio-key", &["SK<h32>"]),
    ("vault-token", &["hvs.<W90>", "hvb.<W140>"]),
    ("xai-key", &["xai-<A80>"]),
    ("jwt", &["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOi<A60>.<W43>"]),
    ("url-password", &["<A16>", "Kd<d3>.<A8>", "<a12>"]),
];

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| _ = random.next());
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn of(&mut self, alphabet: &str, length: usize) -> String {
        let bytes = alphabet.as_bytes();
        (0..length).map(|_| char::from(bytes[self.below(bytes.len())])).collect()
    }

    fn digits(&mut self, length: usize) -> String {
        self.of("0123456789", length)
    }

    /// Fills a form: `A` letters and digits, `a` small ones, `U` capital ones, `h` and `H` hexadecimal, `d` digits, `W` as in
    /// base64url, `6:` as in base64.
    pub(super) fn filled(&mut self, form: &str) -> String {
        const DIGITS: &str = "0123456789";
        const SMALL: &str = "abcdefghijklmnopqrstuvwxyz";
        let capital = SMALL.to_uppercase();
        let mut out = String::new();
        for (i, part) in form.split(['<', '>']).enumerate() {
            if i % 2 == 0 {
                out.push_str(part);
                continue;
            }
            let alphabet = match &part[..1] {
                "A" => format!("{DIGITS}{SMALL}{capital}"),
                "a" => format!("{DIGITS}{SMALL}"),
                "U" => format!("{DIGITS}{capital}"),
                "h" => "0123456789abcdef".into(),
                "H" => "0123456789ABCDEF".into(),
                "d" => DIGITS.into(),
                "W" => format!("{DIGITS}{SMALL}{capital}-_"),
                _ => format!("{DIGITS}{SMALL}{capital}+/"),
            };
            let length: usize = part[1..].trim_start_matches(':').parse().unwrap();
            // A key ends with a letter or a digit, so that the text around it does not seem to belong to it.
            let last = if part.starts_with(['W', '6']) {
                self.of(&format!("{DIGITS}{SMALL}"), 1)
            } else {
                self.of(&alphabet, 1)
            };
            out.push_str(&self.of(&alphabet, length - 1));
            out.push_str(&last);
        }
        out
    }

    /// Returns a value of a kind. Its form follows after a colon, if it has several.
    pub(super) fn value(&mut self, label: &str) -> String {
        if let Some((_, forms)) = KEYS.iter().find(|(kind, _)| *kind == label) {
            let form = forms[self.below(forms.len())];
            return self.filled(form);
        }
        match label {
            "email" => {
                let name = ["ann.lee", "j.smith", "Bob-42", "o'neil", "maria_rossi", "info+eu"][self.below(6)];
                let host = ["example.org", "mail.example.com", "uni-muster.de", "corp.example.co.uk"][self.below(4)];
                format!("{name}{}@{host}", self.below(900))
            }
            "ipv4" => (0..4).map(|_| (1 + self.below(254)).to_string()).collect::<Vec<_>>().join("."),
            "ipv6" => format!("2001:db8:{}::{}", self.filled("<h3>"), self.filled("<d2>")),
            "private-key" => {
                let label = ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY"][self.below(4)];
                let body = [self.filled("<6:64>"), self.filled("<6:64>"), self.filled("<6:30>")].join("\n");
                format!("-----BEGIN {label}-----\n{body}==\n-----END {label}-----")
            }
            "secret:password" => {
                let word = ["Sommer", "winter", "Kraken", "bluewhale", "Qwerty"][self.below(5)];
                format!("{word}{}{}{}", self.digits(3), self.of("!%+*", 1), self.of("abcdefghkmn", 2))
            }
            "secret:hex" => self.filled("<h40>"),
            "secret:uuid" => self.filled("<h8>-<h4>-4<h3>-a<h3>-<h12>"),
            "secret" => {
                let form = ["<A32>", "<A40>", "<a24>", "<W43>"][self.below(4)];
                self.filled(form)
            }
            _ => self.personal(label),
        }
    }

    /// Returns text that is not a value of any kind.
    pub(super) fn harmless(&mut self, label: &str) -> String {
        let (form, length) = label.split_once(':').unwrap_or((label, "16"));
        match form {
            "uuid" => self.filled("<h8>-<h4>-4<h3>-a<h3>-<h12>"),
            "base64" => self.filled(&format!("<6:{length}>")),
            "hex" => self.filled(&format!("<h{length}>")),
            "digits" => self.filled(&format!("<d{length}>")),
            "millis" => format!("17{}", self.digits(11)),
            "seconds" => format!("17{}", self.digits(8)),
            "version" => format!("{}.{}.{}", self.below(20), self.below(40), self.below(99)),
            "date" => format!("20{}-0{}-1{}", 10 + self.below(20), 1 + self.below(9), self.below(10)),
            "camel" => {
                ["getUserToken", "parseHtml2Text", "AbstractSecretFactory3", "toIso8601String"][self.below(4)].into()
            }
            other => panic!("no harmless text is called {other:?}"),
        }
    }
}

pub(super) mod personal;
