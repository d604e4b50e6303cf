package remote

// The keywords of ssh_config. Any other is refused where it applies to the host, but for
// those of IgnoreUnknown.
var (
	// followed are kept; settings.go says what is made of them, and what value is refused.
	followed = []string{
		"hostname", "user", "port", "identityfile", "certificatefile", "identitiesonly", "identityagent", "proxyjump",
		"userknownhostsfile", "globalknownhostsfile", "stricthostkeychecking", "hostkeyalias", "connecttimeout", "addressfamily",

		// Refused, but for the value that changes nothing.
		"proxycommand", "knownhostscommand", "revokedhostkeys", "canonicalizehostname", "pkcs11provider",
		"pubkeyauthentication", "preferredauthentications", "bindaddress", "bindinterface",
	}
	severalArgs = []string{"userknownhostsfile", "globalknownhostsfile", "revokedhostkeys", "proxycommand", "knownhostscommand"}
	manyTimes   = []string{"identityfile", "certificatefile"}

	// passedOver change nothing of what is done here: a terminal, forwarding, other ways to
	// log in, sharing of connections, how ssh prints. Algorithms are among them: those of Go's
	// client are used, which leaves weak ones out by itself.
	passedOver = []string{
		"addkeystoagent", "batchmode", "canonicaldomains", "canonicalizefallbacklocal", "canonicalizemaxdots",
		"canonicalizepermittedcnames", "casignaturealgorithms", "challengeresponseauthentication", "channeltimeout", "checkhostip",
		"ciphers", "clearallforwardings", "compression", "connectionattempts", "controlmaster", "controlpath", "controlpersist",
		"dynamicforward", "enableescapecommandline", "enablesshkeysign", "escapechar", "exitonforwardfailure", "fingerprinthash",
		"forkafterauthentication", "forwardagent", "forwardx11", "forwardx11timeout", "forwardx11trusted", "gatewayports",
		"gssapiauthentication", "gssapiclientidentity", "gssapidelegatecredentials", "gssapikexalgorithms", "gssapikeyexchange",
		"gssapirenewalforcesrekey", "gssapiserveridentity", "gssapitrustdns", "hashknownhosts", "hostbasedacceptedalgorithms",
		"hostbasedauthentication", "hostbasedkeytypes", "hostkeyalgorithms", "ipqos", "kbdinteractiveauthentication",
		"kbdinteractivedevices", "keyboardinteractiveauthentication", "kexalgorithms", "localcommand", "localforward", "loglevel",
		"logverbose", "macs", "nohostauthenticationforlocalhost", "numberofpasswordprompts", "obscurekeystroketiming",
		"passwordauthentication", "permitlocalcommand", "permitremoteopen", "proxyusefdpass", "pubkeyacceptedalgorithms",
		"pubkeyacceptedkeytypes", "rekeylimit", "remotecommand", "remoteforward", "requesttty", "requiredrsasize",
		"securitykeyprovider", "sendenv", "serveralivecountmax", "serveraliveinterval", "sessiontype", "setenv", "stdinnull",
		"streamlocalbindmask", "streamlocalbindunlink", "syslogfacility", "tag", "tcpkeepalive", "tunnel", "tunneldevice",
		"updatehostkeys", "useroaming", "usekeychain", "verifyhostkeydns", "visualhostkey", "xauthlocation",
	}
)
