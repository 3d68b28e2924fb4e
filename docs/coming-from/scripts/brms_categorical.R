# The brms side of docs/coming-from/brms-bambi.md. From this folder:
#   Rscript brms_categorical.R > ../recorded/brms_categorical.txt
# prints what the page shows, and writes the numbers with all digits to ../recorded/brms_categorical.json.
suppressMessages(library(brms))
# Where Boost is a package of the system (Debian), rstan finds it after rstan::rstan_options(boost_lib = "/usr/include").
options(width = 110, digits = 4)
penguins <- na.omit(read.csv("../../../src/posteriori/tables/bundled/penguins.csv")[, c("species", "flipper_length_mm", "body_mass_g")])
standard <- function(x) (x - mean(x)) / sqrt(mean((x - mean(x))^2))
penguins$flipper <- standard(penguins$flipper_length_mm)
penguins$mass <- standard(penguins$body_mass_g)

classes <- c("muChinstrap", "muGentoo")
belief <- c(set_prior("normal(0, 2)", class = "b", dpar = classes), set_prior("normal(0, 5)", class = "Intercept", dpar = classes))
fit <- brm(species ~ flipper + mass, penguins, family = categorical(refcat = "Adelie"), prior = belief,
           chains = 4, iter = 5000, warmup = 1000, seed = 1, refresh = 0, silent = 2)
print(fixef(fit))

shown <- data.frame(flipper = c(-2, 0, 0, 1), mass = c(-1, -0.5, 0.5, 0))
probabilities <- posterior_epred(fit, newdata = shown)
means <- apply(probabilities, c(2, 3), mean)
ends <- apply(probabilities, c(2, 3), quantile, c(0.025, 0.975))
cat("\nprobabilities of four new penguins\n"); print(round(means, 3))
cat("lower ends of 95 % intervals\n"); print(round(ends[1, , ], 3))
cat("upper ends\n"); print(round(ends[2, , ], 3))

versions <- lapply(c(R = "base", brms = "brms", rstan = "rstan"), function(p) as.character(packageVersion(p)))
numbers <- list(versions = versions, rows = rownames(fixef(fit)), means = unname(fixef(fit)[, 1]), sds = unname(fixef(fit)[, 2]),
                probabilities = unname(means), lower = unname(ends[1, , ]), upper = unname(ends[2, , ]))
writeLines(jsonlite::toJSON(numbers, digits = NA, auto_unbox = TRUE, pretty = TRUE), "../recorded/brms_categorical.json")
cat("\n## versions\n"); cat(paste(names(versions), unlist(versions), collapse = ", "), "\n")
