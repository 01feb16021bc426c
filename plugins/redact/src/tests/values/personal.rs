//! Numbers of persons and accounts, with their check digits.

use super::Random;

impl Random {
    pub(super) fn personal(&mut self, label: &str) -> String {
        match label {
            "phone:us" => format!("({}) 5{}-{}", 201 + self.below(700), self.digits(2), self.digits(4)),
            "phone:de" => format!("0{}0 {}", 3 + self.below(6), self.digits(7)),
            "phone:uk" => format!("07{} {}", self.digits(3), self.digits(6)),
            "phone:fr" => format!("06 {} {} {} {}", self.digits(2), self.digits(2), self.digits(2), self.digits(2)),
            "phone" => match self.below(5) {
                0 => format!("+1 {}-5{}-{}", 201 + self.below(700), self.digits(2), self.digits(4)),
                1 => format!("+49 {}0 {}", 3 + self.below(6), self.digits(7)),
                2 => format!("+44 7{} {}", self.digits(3), self.digits(6)),
                3 => format!("+33 6 {} {} {} {}", self.digits(2), self.digits(2), self.digits(2), self.digits(2)),
                _ => format!("+91{}{}", 7 + self.below(3), self.digits(9)),
            },
            "credit-card" => self.card(),
            "iban" => self.iban(),
            "us-ssn" => format!("{:03}-{:02}-{:04}", 1 + self.below(665), 1 + self.below(98), 1 + self.below(9998)),
            "us-ssn:bare" => format!("{:03}{:02}{:04}", 1 + self.below(665), 1 + self.below(98), 1 + self.below(9998)),
            "uk-nhs" => self.until(9, |body| {
                let check = (11 - weigh(body, &[10, 9, 8, 7, 6, 5, 4, 3, 2]) % 11) % 11;
                (check < 10).then(|| format!("{} {} {}{check}", &body[..3], &body[3..6], &body[6..]))
            }),
            "uk-nino" => {
                let letters = [self.of("ABCEGHJKLMPRSTWXY", 1), self.of("ABCEHJLMPRSWXY", 1)].concat();
                format!("{letters} {} {} {} {}", self.digits(2), self.digits(2), self.digits(2), self.of("ABCD", 1))
            }
            "nl-bsn" => self.until(8, |body| {
                let check = weigh(body, &[9, 8, 7, 6, 5, 4, 3, 2]) % 11;
                (check < 10 && !body.starts_with("00")).then(|| format!("{body}{check}"))
            }),
            "de-tax-id" => self.german(),
            "fr-nir" => {
                let body = format!(
                    "{}{}{:02}{:02}{}{}",
                    1 + self.below(2),
                    self.digits(2),
                    1 + self.below(12),
                    1 + self.below(95),
                    self.digits(3),
                    self.digits(3)
                );
                let key = 97 - body.parse::<u64>().unwrap() % 97;
                let b = &body;
                format!("{} {} {} {} {} {} {key:02}", &b[..1], &b[1..3], &b[3..5], &b[5..7], &b[7..10], &b[10..])
            }
            "es-dni" => {
                let (number, letters) = (self.below(100_000_000), "TRWAGMYFPDXBNJZSQVHLCKE");
                let letter = |number: usize| &letters[number % 23..=number % 23];
                match self.below(3) {
                    0 => format!("{number:08}{}", letter(number)),
                    1 => format!("{number:08}-{}", letter(number)),
                    _ => format!("Y{:07}{}", number % 10_000_000, letter(10_000_000 + number % 10_000_000)),
                }
            }
            "it-codice-fiscale" => self.italian(),
            "br-cpf" => {
                let body = self.digits(9);
                let one = mod_11(&body, 10);
                let two = mod_11(&format!("{body}{one}"), 11);
                format!("{}.{}.{}-{one}{two}", &body[..3], &body[3..6], &body[6..])
            }
            "br-cnpj" => {
                let body = format!("{}0001", self.digits(8));
                let check = |body: &str| {
                    let sum: u32 =
                        digits(body).rev().enumerate().map(|(i, d)| d * (u32::try_from(i).unwrap() % 8 + 2)).sum();
                    if sum % 11 < 2 { 0 } else { 11 - sum % 11 }
                };
                let one = check(&body);
                let two = check(&format!("{body}{one}"));
                format!("{}.{}.{}/{}-{one}{two}", &body[..2], &body[2..5], &body[5..8], &body[8..])
            }
            "in-aadhaar" => {
                let body = format!("{}{}", 2 + self.below(8), self.digits(10));
                let check = (0..10).find(|check| verhoeff(&format!("{body}{check}"))).unwrap();
                format!("{} {} {}{check}", &body[..4], &body[4..8], &body[8..])
            }
            "se-personnummer" => {
                let body = format!(
                    "{:02}{:02}{:02}{}",
                    self.below(100),
                    1 + self.below(12),
                    1 + self.below(28),
                    self.digits(3)
                );
                format!("{}-{}{}", &body[..6], &body[6..], luhn(&body))
            }
            "pl-pesel" => {
                let body = format!(
                    "{:02}{:02}{:02}{}",
                    self.below(100),
                    1 + self.below(12),
                    1 + self.below(28),
                    self.digits(4)
                );
                format!("{body}{}", (10 - weigh(&body, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3]) % 10) % 10)
            }
            "ch-ahv" => {
                let body = format!("756{}", self.digits(9));
                let check = (10 - weigh(&body, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3]) % 10) % 10;
                format!("756.{}.{}.{}{check}", &body[3..7], &body[7..11], &body[11..])
            }
            "fi-hetu" => {
                let (date, number) = (
                    format!("{:02}{:02}{:02}", 1 + self.below(28), 1 + self.below(12), self.below(100)),
                    self.digits(3),
                );
                let rest: usize = format!("{date}{number}").parse::<usize>().unwrap() % 31;
                format!("{date}-{number}{}", &"0123456789ABCDEFHJKLMNPRSTUVWXY"[rest..=rest])
            }
            "cn-id" => {
                let body = format!(
                    "{}19{}{:02}{:02}{}",
                    self.filled("11<d4>"),
                    self.digits(2),
                    1 + self.below(12),
                    1 + self.below(28),
                    self.digits(3)
                );
                let sum = weigh(&body, &[7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]) as usize % 11;
                format!("{body}{}", &"10X98765432"[sum..=sum])
            }
            "mx-curp" => {
                let letters = "BCDFGHJKLMNPQRSTVWXYZ";
                let body = format!(
                    "{}{:02}{:02}{:02}{}{}{}",
                    self.of(letters, 4),
                    self.below(100),
                    1 + self.below(12),
                    1 + self.below(28),
                    self.of("HM", 1),
                    self.of(letters, 5),
                    self.digits(1)
                );
                let alphabet: Vec<char> = "0123456789ABCDEFGHIJKLMNÑOPQRSTUVWXYZ".chars().collect();
                let value = |c: char| alphabet.iter().position(|one| *one == c).unwrap();
                let sum: usize = body.chars().enumerate().map(|(i, c)| value(c) * (18 - i)).sum();
                format!("{body}{}", (10 - sum % 10) % 10)
            }
            other => panic!("no value is called {other:?}"),
        }
    }

    fn until(&mut self, length: usize, made: impl Fn(&str) -> Option<String>) -> String {
        loop {
            if let Some(value) = made(&self.digits(length)) {
                return value;
            }
        }
    }

    fn card(&mut self) -> String {
        let (prefix, length) =
            [("4", 16), ("51", 16), ("2221", 16), ("37", 15), ("6011", 16), ("3530", 16), ("62", 16)][self.below(7)];
        let body = format!("{prefix}{}", self.digits(length - prefix.len() - 1));
        let number = format!("{body}{}", luhn(&body));
        let separator = ["", " ", "-"][self.below(3)];
        let groups = if length == 15 { vec![0..4, 4..10, 10..15] } else { vec![0..4, 4..8, 8..12, 12..16] };
        groups.into_iter().map(|group| &number[group]).collect::<Vec<_>>().join(separator)
    }

    fn iban(&mut self) -> String {
        let (country, bank) =
            [("DE", "<d18>"), ("GB", "WEST<d14>"), ("FR", "<d10><U11><d2>"), ("NL", "ABNA<d10>"), ("NO", "<d11>")]
                [self.below(5)];
        let bank = self.filled(bank);
        let moved = format!("{bank}{country}00");
        let value = |c: char| c.to_digit(36).unwrap().to_string();
        let rest = moved
            .chars()
            .map(value)
            .collect::<String>()
            .chars()
            .fold(0, |rest, d| (rest * 10 + d.to_digit(10).unwrap()) % 97);
        let iban = format!("{country}{:02}{bank}", 98 - rest);
        if self.below(2) == 0 {
            return iban;
        }
        iban.as_bytes().chunks(4).map(|group| std::str::from_utf8(group).unwrap()).collect::<Vec<_>>().join(" ")
    }

    /// Returns a German tax number: of ten digits one occurs twice and one never.
    fn german(&mut self) -> String {
        let mut pool: Vec<usize> = (0..10).collect();
        pool.remove(self.below(10));
        let twice = pool[self.below(9)];
        pool.push(twice);
        for i in (1..10).rev() {
            let other = self.below(i + 1);
            pool.swap(i, other);
        }
        if pool[0] == 0 {
            let other = pool.iter().rposition(|d| *d != 0).unwrap();
            pool.swap(0, other);
        }
        let mut product = 10;
        for d in &pool {
            let sum = match (d + product) % 10 {
                0 => 10,
                sum => sum,
            };
            product = sum * 2 % 11;
        }
        let number = format!("{}{}", pool.iter().map(ToString::to_string).collect::<String>(), (11 - product) % 10);
        if self.below(2) == 0 {
            number
        } else {
            format!("{} {} {} {}", &number[..2], &number[2..5], &number[5..8], &number[8..])
        }
    }

    fn italian(&mut self) -> String {
        let letters = "BCDFGLMNPRSTVZ";
        let body = format!(
            "{}{}{}{:02}{}{}",
            self.of(letters, 6),
            self.digits(2),
            self.of("ABCDEHLMPRST", 1),
            1 + self.below(28),
            self.of(letters, 1),
            self.digits(3)
        );
        let odd = "BAKPLCQDREVOSFTGUHMINJWZYX";
        let sum: usize = body
            .chars()
            .enumerate()
            .map(|(i, c)| {
                let place =
                    if c.is_ascii_digit() { c.to_digit(10).unwrap() as usize } else { c as usize - 'A' as usize };
                if i % 2 == 0 { odd.find((b'A' + u8::try_from(place).unwrap()) as char).unwrap() } else { place }
            })
            .sum();
        format!("{body}{}", char::from(b'A' + u8::try_from(sum % 26).unwrap()))
    }
}

fn digits(text: &str) -> impl DoubleEndedIterator<Item = u32> {
    text.bytes().map(|b| u32::from(b - b'0'))
}

fn weigh(text: &str, weights: &[u32]) -> u32 {
    digits(text).zip(weights).map(|(d, weight)| d * weight).sum()
}

/// Returns the check digit of a CPF: the weights fall from `first` to 2.
fn mod_11(body: &str, first: u32) -> u32 {
    let sum: u32 = digits(body).zip((2..=first).rev()).map(|(d, weight)| d * weight).sum();
    match sum % 11 {
        0 | 1 => 0,
        rest => 11 - rest,
    }
}

/// Returns the digit that makes a number right by Luhn.
fn luhn(body: &str) -> u32 {
    let doubled = |d: u32| d * 2 / 10 + d * 2 % 10;
    let sum: u32 = digits(body).rev().enumerate().map(|(i, d)| if i % 2 == 0 { doubled(d) } else { d }).sum();
    (10 - sum % 10) % 10
}

/// Verhoeff, by the tables of its inventor.
fn verhoeff(number: &str) -> bool {
    const D: [&str; 10] = [
        "0123456789",
        "1234067895",
        "2340178956",
        "3401289567",
        "4012395678",
        "5987604321",
        "6598710432",
        "7659821043",
        "8765932104",
        "9876543210",
    ];
    const P: [&str; 8] = [
        "0123456789",
        "1576283094",
        "5803796142",
        "8916043527",
        "9453126870",
        "4286573901",
        "2793806415",
        "7046913258",
    ];
    let at = |table: &str, place: u32| u32::from(table.as_bytes()[place as usize] - b'0');
    digits(number).rev().enumerate().fold(0, |c, (i, d)| at(D[c as usize], at(P[i % 8], d))) == 0
}
