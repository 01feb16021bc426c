//! Groups of words that the patterns of rules name in braces.

/// A name, and the alternatives that it expands to. A later entry can name earlier ones.
pub(crate) const WORDS: &[(&str, &str)] = &[
    ("..", r"[^\n]*"),
    ("few", r"(?:[^\n ]+ ){0,4}"),
    ("the", r"(?:the |this |that |any |all |every |your |our |its |my |a |an |of |to )*"),
    (
        "user",
        r"(?:(?:the |any |end |end-|human |real |to )*(?:users?|humans?|person|people|customers?|operators?|anyone|anybody|owner)\b)",
    ),
    (
        "model",
        r"(?:(?:the |this |any )?(?:ai|llm|language model|assistants?|models?|agents?|chatbot|ai assistants?|ai models?|ai agents?|claude|gpt)\b)",
    ),
    (
        "not",
        r"(?:\b(?:do not|dont|does not|never|must not|should not|shouldnt|mustnt|without|avoid|refrain from|cannot|no need to|not to|not)\b)",
    ),
    (
        "dont",
        r"(?:\b(?:do not|dont|never|must not|should not|shouldnt|mustnt|may not|avoid|refrain from|no need to|without|not to)\b)",
    ),
    (
        "must",
        r"(?:\b(?:must|always|mandatory|required|make sure|be sure to|have to|need to|needs to|shall|should|critical|automatically|every time|immediately|please)\b)",
    ),
    ("firm", r"(?:\b(?:must|always|mandatory|automatically|silently|shall|every time|in all cases)\b)"),
    (
        "send",
        r"(?:\b(?:send|forward|transmit|upload|post|exfiltrate|submit|leak|relay|copy|deliver|mail|e-mail|email|bcc|cc|ship|push|beacon|sync|stream|report|share)(?:s|es|ing|ed|ting|ted)?\b|\bsent\b)",
    ),
    ("call", r"(?:\b(?:call|invoke|run|use|execute|trigger|query|access|visit|contact)(?:s|ed|ing|d)?\b)"),
    ("tool", r"(?:\b[a-z0-9]+(?:_[a-z0-9]+)+\b|\b[a-z0-9-]+ tools?\b)"),
    (
        "why",
        r"(?:complian(?:ce|t)|regulat(?:ions?|ory)|legal (?:reasons|requirements|purposes)|the (?:[a-z]+ )?law\b|licen[cs]e terms|security (?:protocols?|polic(?:y|ies)|verification|validation|requirements?|checkpoint|reasons|purposes|scan(?:ning)?|measures?|standards?)|safety (?:compliance|protocols?|reasons|purposes|standards?|rules|regulations|laws)|(?:privacy|tax|banking|health|travel) (?:rules|regulations|laws)|audit (?:purposes|requirements|reasons)|data protection|account (?:suspension|verification)|terms of (?:service|use)|gdpr|pdpa|hipaa|verification purposes|proper validation)",
    ),
    ("collect", r"(?:\b(?:collect|captur|record|harvest|gather|log|track|extract)(?:s|es|ed|ing|e)?\b)"),
    (
        "kept",
        r"(?:sent|sends?|shared?|shares|stored?|stores|retained?|retains|kept|logged|logs|uploaded?|uploads|transmitted|transmits?|synced|syncs|synchroni[sz]e[sd]?|forwarded|forwards|reported|reports|submitted|submits|added|copied|collected|collects|archived|archives|saved|recorded|records|backed up|mirrored|streamed|posted|relayed|disclosed|sold|made available|remembered|persisted|tracked|tracks|catalogu?ed|captures?|captured|maintained|provided|harvested)",
    ),
    (
        "gone",
        r"(?:sent|sends|shared|shares|stored|retained?|retains|kept|logged|logs|uploaded|uploads|transmitted|transmits|synced|forwarded|reported|submitted|archived|sold|recorded|records|collected|collects|captured|captures|harvested|catalogu?ed|remembered)",
    ),
    (
        "yours",
        r"(?:conversations?|chats?|user(?:s)? (?:data|inputs?|identity|messages?|files?|content|prompts?|queries)|(?:test |submitted |all )inputs?|documents?|source (?:files?|code)|recordings?|submitted texts?|(?:extracted|processed|visible) texts?|e-?mail addresses|phone numbers|home addresses|symptoms|faces|plates|clipboard|keystrokes|location(?:s| history)?|working directory|secrets|credentials|account numbers|screenshots?|emails)",
    ),
    (
        "private",
        r"(?:\b(?:passwords?|credentials?|secrets|credit cards?|card numbers?|personal (?:data|information|details)|keystrokes|clipboard|browsing (?:history|data)|session cookies|contact lists?|phone numbers|location history|faces|licen[cs]e plates|biometric[a-z]*|voice ?prints|environment (?:details|variables)|conversations?|chat history|private keys?|account numbers|e-?mail addresses|home (?:and work )?addresses|users? identity|symptoms|sensitive (?:data|information|documents))\b)",
    ),
    (
        "pass",
        r"(?:\b(?:pass|include|put|place|insert|append|attach|embed|encode|provide|supply|add|write|offload|fill|copy|dump|paste|store|set)(?:s|es|ing|ed|d)?\b)",
    ),
    (
        "read",
        r"(?:\b(?:read|reads|reading|open|cat|load|fetch|retrieve|access|collect|gather|extract|grab|get|obtain|scan|dump|copy|include|view|list|harvest|check)(?:s|es|ing|ed)?\b)",
    ),
    (
        "secret",
        r"(?:private keys?|ssh keys?|api[ _-]?keys?|access keys?|secret keys?|credentials?|passwords?|passphrases?|auth(?:entication)? tokens?|access tokens?|session tokens?|environment variables?|env vars|secrets?\b|cookies|seed phrases?|wallets?\b|private (?:information|data)|sensitive (?:information|data|files?|documents?)|personal (?:information|data)|confidential (?:information|data|files?)|credit cards?|\$\{?[a-z_]*(?:token|key|secret|password)[a-z_]*\}?)",
    ),
    (
        "file",
        r"(?:\.ssh\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|/etc/(?:passwd|shadow|sudoers)|\.aws/credentials|\.aws/config|\.bashrc|\.zshrc|\.bash_profile|[/ ]\.profile\b|\.bash_history|\.zsh_history|\.netrc|\.git-credentials|\.gnupg|\bauthorized_keys|\blogin data\b|wallet\.dat|\.config/(?:gcloud|gh)\b|/proc/self/environ|\.password-store|login\.keychain)",
    ),
    (
        "config",
        r"(?:[ /,(]\.env\b|\.npmrc|\.pypirc|\.kube/config|\.docker/config|[ ,(/]\.pem\b|[a-z0-9_-]+\.pem\b|(?:private|server|ssl|tls)[a-z_-]*\.key\b|[ ,(]\.key[ ,)]|\bcredentials\.json|[ /.]mcp\.json|claude_desktop_config|\.cursor/|\.terraform\.d/credentials)",
    ),
    (
        "chatlog",
        r"(?:(?:conversation|chat|dialogue?) (?:history|context|logs?|transcripts?|threads?|so far)|(?:entire|full|whole|complete|verbatim) (?:user )?(?:conversations?|chats?|dialogue|context)\b|all (?:previous|prior|earlier|user) messages|usr hist)",
    ),
    (
        "safety",
        r"(?:(?:safety|ethical|moderation)[a-z-]*[ -](?:related )?(?:checks?|instructions?|guidelines?|rules?|polic(?:y|ies)|filters?|guardrails?|protocols?|measures|restrictions?|training)|guardrails|safeguards|content (?:moderation|filter(?:s|ing)?))",
    ),
    (
        "detects",
        r"(?:\b(?:detects?|detection|detector|detected|classif[a-z]+|red[- ]team[a-z]*|jailbreak attempts?|prompt[- ]injections?|inline guardrail|untrusted|attacks? such as|attempts? to)\b|\bexamples?: [a-z0-9_]+\()",
    ),
    (
        "place",
        r"(?:https?://[^ \n]+|[a-z0-9._%+-]+@[a-z0-9-]+\.[a-z]|\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|net|io|org|example|evil|xyz|ru|cn|dev|site|app)\b|\bwebhooks?\b|\b(?:external|remote|third[ -]party|attacker)[a-z -]{0,20}(?:server|endpoint|service|url|address|api|host)s?\b)",
    ),
    ("answer", r"(?:(?:final |next |own )*(?:answers?|responses?|repl(?:y|ies)|outputs?|messages?|emails?)\b)"),
    (
        "guard",
        r"(?:(?:safety|security|content|moderation|ethical|privacy)[a-z-]*[ -](?:related )?(?:checks?|instructions?|guidelines?|rules?|polic(?:y|ies)|filters?|filtering|guardrails?|protocols?|measures|restrictions?|controls?|moderation)|guardrails|safeguards|content moderation)",
    ),
    (
        "lore",
        r"(?:(?:previous|prior|earlier|preceding|above|original|initial|your|former|all other|other|system|existing|current)(?: [a-z]+)? (?:instructions?|prompts?|directives?|guidelines)|(?:previous|prior|earlier|preceding|above|your|former)(?: [a-z]+)? (?:rules|commands|constraints))",
    ),
    (
        "orders",
        r"(?:(?:previous|prior|earlier|preceding|above|your|all other)(?: [a-z]+)? (?:instructions?|prompts?|directives?|guidelines))",
    ),
];
